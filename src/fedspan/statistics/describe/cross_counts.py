"""The number of rows for each pair of names of two columns, by one sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.checks import needs_pandas, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, RunRecord, Site, step
from fedspan.federation.site.parameters import Flags, Index, Labels, Matrix, Vector
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.statistics.describe.description import ALL
from fedspan.statistics.describe.noisy_tables import check_public, noisy_cross_counts
from fedspan.statistics.describe.parts.group_tests import GroupTest, counts_test
from fedspan.statistics.describe.parts.grouped_rows import pair_counts
from fedspan.statistics.describe.parts.shown_frame import ShownFrame
from fedspan.statistics.describe.parts.suppression import hidden_cells, shown, table_sums
from fedspan.statistics.describe.parts.table_columns import (
    TableColumns,
    federation_of,
    named_columns,
    position,
    public_columns,
    read_columns,
)
from fedspan.sums.plausible_totals import whole

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMES = 256
#: Cells of a table: which of them can stay visible takes time by the square of their number.
_MOST_CELLS = 10_000


@step("describe.cross_counts", reveals="sums")
def local_cross_counts(
    site: Site, first: Index, second: Index, first_names: Labels, second_names: Labels
) -> dict[str, Any]:
    """Leaves the site: the number of rows for each pair of names of two columns."""
    return {"counts": pair_counts(site, first, second, first_names, second_names)}


@dataclass(frozen=True, repr=False)
class Crosstab(ShownFrame):
    """Counts (r, c) of rows by the names of two columns, with their totals; NaN where they are suppressed.

    `test` is the chi-square test of independence; NaN where a count is suppressed.
    """

    columns: tuple[str, str]
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    counts: Matrix
    row_totals: Vector
    column_totals: Vector
    total: float
    test: GroupTest

    run_ = RunRecord("crosstab", {}, number=0, seed=0, sites=())

    def to_frame(self, margins: bool = False) -> pd.DataFrame:
        """Return the counts as ``pandas.crosstab`` does, with `margins` also the totals."""
        needs_pandas()
        import pandas as pd

        values, rows, columns = self.counts, list(self.row_names), list(self.column_names)
        if margins:
            values = np.block([[values, self.row_totals[:, None]], [self.column_totals, np.array([self.total])]])
            rows, columns = [*rows, ALL], [*columns, ALL]
        index, names = pd.Index(rows, name=self.columns[0]), pd.Index(columns, name=self.columns[1])
        return pd.DataFrame(values, index=index, columns=names)


def crosstab(
    fed: Federation,
    rows: str | int,
    columns: str | int,
    *,
    categories: Mapping[str | int, Sequence[str]] | None = None,
    least_set: int = 5,
    min_count: int = 1,
    privacy: GaussianMoments | None = None,
) -> Crosstab:
    """Count the rows for each pair of names of two columns; rows in which one is missing are left out.

    Parameters
    ----------
    fed : Federation
    rows, columns : str or int
        Two columns, of text or of few numbers.
    categories : dict of column to list of names, optional
        Names to count, and no others: no site sends names of these columns. Under secure sums they must be given.
    least_set : int, default=5
        Counts of fewer rows are suppressed, and more counts and totals, so that these can't be computed.
    min_count : int, default=1
        A name leaves a site only if at least this number of its rows hold it.
    privacy : GaussianMoments, optional
        Differential privacy: counts with noise, none of which is suppressed. The names of both columns must be given.

    Examples
    --------
    >>> import pandas as pd, fedspan as fs
    >>> table = pd.DataFrame({"sex": list("fmfmfm") * 10, "smoker": list("yynnyn") * 10})
    >>> crosstab(fs.federate(table, sites=[0, 1] * 30), "sex", "smoker").counts
    array([[10., 20.],
           [20., 10.]])
    """
    for name, value in (("least_set", least_set), ("min_count", min_count)):
        whole_number(name, value, 1)
    check_moments(privacy)
    with federation_of(fed, "crosstab").begin(
        "crosstab", {"rows": rows, "columns": columns, "least_set": least_set, "privacy": privacy}
    ) as run:
        names, seen = named_columns(run)
        at = (position(rows, names, "rows"), position(columns, names, "columns"))
        if at[0] == at[1]:
            raise InputError(f"rows={rows!r} and columns={columns!r} are the same column: name two")
        if privacy is not None:
            known = public_columns(names, categories)
            check_public(seen, known, categories, at)
            lists = [known.categories[j] for j in at]
            return _crosstab(known, at, lists, noisy_cross_counts(seen, at, lists, privacy), 1).of(run)
        known, seen = read_columns(seen, names, categorical=[], categories=categories, as_text=at, min_count=min_count)
        return crosstab_of(seen, known, at, least_set, keep_empty=bool(categories)).of(run)


def crosstab_of(
    seen: Federation, columns: TableColumns, at: tuple[int, int], least: int, *, keep_empty: bool
) -> Crosstab:
    """Return the counts of two columns; names without rows stay if `keep_empty`."""
    lists = [_names(columns, j) for j in at]
    if len(lists[0]) * len(lists[1]) > _MOST_CELLS:
        raise InputError(
            f"columns {columns.names[at[0]]!r} and {columns.names[at[1]]!r} have {len(lists[0])} and {len(lists[1])} "
            f"different values, and a table has at most {_MOST_CELLS:,} cells: name columns of few values"
        )
    first_names, second_names = (np.array(names, dtype=str) for names in lists)
    total = seen.sum(local_cross_counts, first=at[0], second=at[1], first_names=first_names, second_names=second_names)
    counts = np.maximum(whole(total, counts=(len(lists[0]), len(lists[1])))["counts"], 0)
    rows, others = (np.full(len(names), keep_empty) | counts.any(axis=1 - axis) for axis, names in enumerate(lists))
    names = [first_names[rows].tolist(), second_names[others].tolist()]
    return _crosstab(columns, at, names, counts[rows][:, others].astype(np.float64), least)


def _crosstab(
    columns: TableColumns, at: tuple[int, int], names: Sequence[Sequence[str]], counts: Matrix, least: int
) -> Crosstab:
    """Return counts with their totals; those of fewer than `least` rows, and others with them, are suppressed."""
    found = np.zeros((counts.shape[0] + 1, counts.shape[1] + 1))
    found[:-1, :-1] = counts
    found[-1] = found[:-1].sum(axis=0)
    found[:, -1] = found[:, :-1].sum(axis=1)
    hidden = np.zeros(found.shape, dtype=bool)
    if least > 1:
        hidden = _hidden(found, (columns.names[at[0]], columns.names[at[1]]), names, least)
    cells = shown(found, hidden)
    exact = not hidden.any() and bool(np.all(counts == np.round(counts)))  # counts with noise have no such test
    return Crosstab(
        (columns.names[at[0]], columns.names[at[1]]),
        tuple(names[0]),
        tuple(names[1]),
        cells[:-1, :-1],
        cells[:-1, -1],
        cells[-1, :-1],
        float(cells[-1, -1]),
        counts_test(counts if exact else np.zeros((1, 1))),
    )


def _hidden(found: Matrix, titles: tuple[str, str], names: Sequence[Sequence[str]], least: int) -> Flags:
    """Return which cells of a table with margins are hidden: the same ones for any order of columns and of names."""
    order = [[*np.argsort(np.array(own, dtype=str), kind="stable").tolist(), len(own)] for own in names]
    table = found[np.ix_(*order)]
    turned = table.T if titles[1] < titles[0] else table
    rows, columns = turned.shape
    hidden = hidden_cells(turned.ravel(), table_sums(rows - 1, columns - 1), least=least).reshape(turned.shape)
    back = np.zeros(found.shape, dtype=bool)
    back[np.ix_(*order)] = hidden.T if titles[1] < titles[0] else hidden
    return back


def _names(columns: TableColumns, j: int) -> tuple[str, ...]:
    name = columns.names[j]
    if j not in columns.categories:
        raise InputError(
            f"column {name!r} has names that no site may send under secure sums: list them, "
            f"categories={{{name!r}: [...]}}"
        )
    if len(columns.categories[j]) > _MOST_NAMES:
        raise InputError(
            f"column {name!r} has {len(columns.categories[j])} names, and a table has at most {_MOST_NAMES}: list "
            f"those to count, categories={{{name!r}: [...]}}"
        )
    return columns.categories[j]
