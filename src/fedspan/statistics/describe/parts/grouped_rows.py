"""The rows of a site by group: those of all groups first, then those of each group.

A group is a name in one column, or the site itself. Every statistic of a description has one entry for all groups and
one for each of them. So steps return arrays whose first axis has ``1 + groups`` entries. Rows without a group are in
none of these: the difference of two entries would otherwise reveal them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.errors import PolicyError
from fedspan.federation import Site
from fedspan.federation.site.parameters import ArrayOf, Labels, Matrix, Whole
from fedspan.tables.parts.cells import column, names, number_blocks, tables

#: In place of the number of the column with the groups: no groups, or one group for each site.
By = Annotated[int, Whole(-2, 2**31)]
NO_GROUPS, SITES = -1, -2
#: Numbers of columns, or of groups.
Numbers = Annotated[NDArray[np.int64], ArrayOf("whole", 1, least=0, most=2**31)]


@dataclass(frozen=True)
class Grouping:
    """The groups of a description: the column or `SITES`, and the names of the groups."""

    by: int = NO_GROUPS
    names: tuple[str, ...] = ()

    @property
    def payload(self) -> dict[str, Any]:
        """The grouping as parameters of steps."""
        return {"by": self.by, "groups": np.array(self.names, dtype=str)}


def sites_are_groups(payload: Mapping[str, Any]) -> bool:
    """Return whether each site is a group: the sums of a group are then those of one site."""
    return int(payload["by"]) == SITES


def grouped_rows(site: Site, by: int, groups: Labels) -> list[Any]:
    """Return what selects the rows of all groups at a site, then those of each group; without groups, all rows."""
    if by == NO_GROUPS:
        return [slice(None)]
    if by == SITES:
        if site.context.hidden:
            raise PolicyError(f"site {site.name!r} is not a group of its own in a secure sum, which would uncover it")
        own = slice(None) if site.name in groups.tolist() else slice(0)
        return [slice(None), *(own if name == site.name else slice(0) for name in groups.tolist())]

    def make() -> list[Any]:
        codes = group_codes(site, by, groups)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(groups) + 1))
        return [np.sort(order[bounds[0] :]), *(order[bounds[k] : bounds[k + 1]] for k in range(len(groups)))]

    return site.last_of("rows of groups", (by, tuple(groups.tolist())), make)


def group_codes(site: Site, by: int, groups: Labels) -> NDArray[np.intp]:
    """Return the number of the name in `groups` that each row (n,) has in column `by`; -1 for none of them."""
    place = {text: i for i, text in enumerate(groups.tolist()) if text}
    found = [np.zeros(0, dtype=np.intp)]
    for rows in tables(site):
        texts, codes = names(column(rows, by))
        found.append(np.array([place.get(text, -1) for text in texts], dtype=np.intp)[codes])
    return np.concatenate(found)


def pair_counts(site: Site, first: int, second: int, first_names: Labels, second_names: Labels) -> Counts:
    """Return the number of rows for each pair of names of two columns."""
    a, b = group_codes(site, first, first_names), group_codes(site, second, second_names)
    both = (a >= 0) & (b >= 0)
    shape = (len(first_names), len(second_names))
    return np.bincount(a[both] * shape[1] + b[both], minlength=shape[0] * shape[1]).reshape(shape)


def fewest_rows(site: Site, by: int, groups: Labels, **payload: Any) -> int:
    """Return the number of rows of the smallest group at a site that has any, or of those in no group.

    The sums of all rows less those of all groups are about the rows in none.
    """
    return min((len(rows) for rows in parts_of(site, by, groups) if len(rows)), default=0)


def fewest_values(site: Site, columns: Numbers, by: int, groups: Labels, **payload: Any) -> int:
    """Return the smallest number of values that a column has in a group, or in none, of those that have any."""
    known = ~np.isnan(numbers_of(site, columns))
    counts = [known[rows].sum(axis=0) for rows in parts_of(site, by, groups)]
    found = np.concatenate([np.zeros(0, dtype=np.int64), *counts])
    return int(found[found > 0].min(initial=len(site)))


def parts_of(site: Site, by: int, groups: Labels) -> list[NDArray[np.intp]]:
    """Return the rows of all groups, of each group and of none."""
    rows = np.arange(len(site))
    if by < 0:
        return [rows]
    found = [rows[part] for part in grouped_rows(site, by, groups)]
    return [*found, np.setdiff1d(rows, found[0])]


def numbers_of(site: Site, columns: Numbers) -> Matrix:
    """Return the cells of some columns (n, k) as numbers, NaN for missing ones."""

    def make() -> Matrix:
        blocks = [block.values[:, columns] for block in number_blocks(site)]
        return blocks[0] if len(blocks) == 1 else np.concatenate([np.zeros((0, len(columns))), *blocks])

    return site.last_of("numbers", columns.tobytes(), make)
