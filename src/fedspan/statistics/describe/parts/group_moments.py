"""Number, mean and deviation of each column, of all rows and of each group: exact sums in one or two rounds.

A site sends sums about a common centre, and squares about its own means. The squares of all rows then follow without
cancellation where the centre is near. Where it was not, a second round is about the groups' own means.

Up per site: 4 (1 + groups) d numbers a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Labels, Matrix, Vector
from fedspan.statistics.describe.parts.grouped_rows import (
    By,
    Grouping,
    Numbers,
    fewest_values,
    grouped_rows,
    numbers_of,
    sites_are_groups,
)
from fedspan.sums.plausible_totals import whole

#: A variance that is the difference of squares this many times larger has lost two of its sixteen digits.
_MOST_CANCELLED = 1e2
_MOST_ROUNDS = 3


@step("describe.group_sums", reveals="sums", fewest=fewest_values, fewest_in_sums=False, by_site=sites_are_groups)
def local_group_sums(site: Site, columns: Numbers, centre: Matrix, by: By, groups: Labels) -> dict[str, Any]:
    """Leaves the site: by group the number of rows and, of each column, the number of its values and three sums.

    The sums are those about `centre`, of squares about the site's own mean, and of that mean's squared distances from
    `centre`.
    """
    values = numbers_of(site, columns)
    parts = grouped_rows(site, by, groups)
    n = np.zeros((len(parts), len(columns)), dtype=np.int64)
    total, within, between = (np.zeros(n.shape) for _ in range(3))
    rows = np.zeros(len(parts), dtype=np.int64)
    for g, part in enumerate(parts):
        D = values[part] - centre[g]
        rows[g] = n[g] = len(D)
        total[g] = D.sum(axis=0)
        gaps = np.flatnonzero(np.isnan(total[g]))  # most columns have none
        missing = np.isnan(D[:, gaps])
        total[g, gaps] = np.where(missing, 0.0, D[:, gaps]).sum(axis=0)
        n[g, gaps] -= missing.sum(axis=0)
        mean = total[g] / np.maximum(n[g], 1)
        between[g] = n[g] * mean**2
        D -= mean
        D[:, gaps] = np.where(missing, 0.0, D[:, gaps])
        within[g] = np.einsum("ij,ij->j", D, D)
    return {"rows": rows, "n": n, "sum": total, "within": within, "between": between}


@dataclass(frozen=True)
class GroupMoments:
    """Rows (1 + G,), and of each column (1 + G, d) the number of values, their mean and their deviation (ddof 1).

    The first entry is about all rows. Means without values and deviations of fewer than two values are NaN.
    """

    rows: Counts
    n: Counts
    mean: Matrix
    std: Matrix
    sites: tuple[str, ...] = ()

    @property
    def variance(self) -> Matrix:
        """The squared deviations."""
        return self.std**2


def group_moments(seen: Federation, *, columns: NDArray[np.int64], centre: Vector, grouping: Grouping) -> GroupMoments:
    """Return the moments of the columns; `centre` (d,) is about the mean of each."""
    shape = (1 + len(grouping.names), len(columns))
    about = np.broadcast_to(centre, shape)
    for _ in range(_MOST_ROUNDS):
        total = seen.sum(local_group_sums, columns=columns, centre=about, **grouping.payload)
        whole(total, rows=shape[:1], n=shape, sum=shape, within=shape, between=shape)
        n = np.maximum(total["n"], 0)
        shift = total["sum"] / np.maximum(n, 1)
        apart = np.maximum(total["between"] - n * shift**2, 0.0)
        squares = np.maximum(total["within"] + apart, 0.0)
        mean = about + shift
        if not np.any(total["between"] > _MOST_CANCELLED * np.maximum(squares, 1e-300) * (n > 0)):
            break
        about = mean
    known, spread = n > 0, n > 1
    std = np.full(shape, np.nan)
    std[spread] = np.sqrt(squares[spread] / (n[spread] - 1))
    return GroupMoments(np.maximum(total["rows"], 0), n, np.where(known, mean, np.nan), std, tuple(total.sites))
