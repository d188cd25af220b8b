"""Suppression of small cells, and of more cells, so that totals do not give them back.

Published counts are cells that are bound by sums: the cells of a row add up to its total. Cells of fewer rows than
`least` are hidden. An attacker may know all other cells, all sums, and that a hidden cell is not empty. By linear
programming it could still bound the cell from both sides. So more cells are hidden (complementary suppression). In the
end the bounds of each small cell are at least `least` apart, and no hidden cell can be solved for. Tables of one run
agree on what they hide: what one of them shows is public in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.federation.site.parameters import Flags

#: A change of a count that counts as 0; cells, and directions, with which bounds of many cells are found at once.
_NONE = 1e-6
_FEW, _DIRECTIONS = 8, 12
Cells = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True)
class CellSums:
    """Cells that are bound by sums: `relations` (k, m) times the cells (m,) is 0; `public` cells are never hidden."""

    relations: NDArray[np.int8]
    public: Flags


def table_sums(rows: int, columns: int, *, public_rows: bool = False) -> CellSums:
    """Return the sums of a table with margins: (rows + 1, columns + 1) cells, the last of each is the total.

    The grand total is public; with `public_rows` the totals of the rows are, too.
    """
    at = np.arange((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    relations = np.zeros((rows + 1 + columns + 1, at.size), dtype=np.int8)
    for i, members in enumerate([*at, *at.T]):
        relations[i, members[:-1]], relations[i, members[-1]] = 1, -1
    public = np.zeros(at.shape, dtype=bool)
    public[-1, -1] = True
    public[:, -1] |= public_rows
    return CellSums(relations, public.ravel())


def list_sums(cells: int) -> CellSums:
    """Return the sums of a list of cells whose total, the last one, is public."""
    relations = np.ones((1, cells + 1), dtype=np.int8)
    relations[0, -1] = -1
    return CellSums(relations, np.arange(cells + 1) == cells)


def hidden_cells(counts: Cells, sums: CellSums, *, least: int, small: Flags | None = None) -> Flags:
    """Return which cells (m,) must be hidden; `small` are those that are hidden if they have fewer rows than `least`.

    Examples
    --------
    >>> counts = np.array([[40, 3, 30, 73], [20, 25, 35, 80], [60, 28, 65, 153]])
    >>> hidden_cells(counts.ravel(), table_sums(2, 3), least=5).reshape(3, 4)[:2, :3]
    array([[ True,  True, False],
           [ True,  True, False]])
    """
    counts = np.asarray(counts, dtype=np.float64)
    sensitive = (counts > 0) & (counts < least) & (True if small is None else small)
    if (sensitive & sums.public).any():  # a total is too small itself
        return np.ones(len(counts), dtype=bool)
    for zeros in (False, True):
        hidden = _protected(counts, sums, sensitive, least, zeros)
        if hidden is not None:
            return _without_known(counts, sums, hidden)
    # Nothing but public totals is shown, if that is enough.
    hidden = ~sums.public
    known = [bounds(counts, sums, hidden, cell, lowest=0) for cell in np.flatnonzero(sensitive).tolist()]
    if all(high - low > 0.5 for low, high in known):
        return _without_known(counts, sums, hidden)
    return np.ones(len(counts), dtype=bool)


def bounds(counts: Cells, sums: CellSums, hidden: Flags, cell: int, *, lowest: int = 1) -> tuple[float, float]:
    """Return the smallest and the largest number that a hidden cell can have, for all that the other cells reveal."""
    from scipy.optimize import linprog

    unknown = np.flatnonzero(hidden)
    used = sums.relations[np.any(sums.relations[:, hidden] != 0, axis=1)]
    known = -(used[:, ~hidden] @ counts[~hidden])
    ends = []
    for sign in (1.0, -1.0):
        found = linprog(
            sign * (unknown == cell), A_eq=used[:, hidden], b_eq=known, bounds=(lowest, None), method="highs"
        )
        ends.append(sign * found.fun if found.status == 0 else sign * -np.inf)
    return ends[0], ends[1]


def _protected(counts: Cells, sums: CellSums, sensitive: Flags, least: int, zeros: bool) -> Flags | None:
    """Return the cells to hide so that each `sensitive` one might as well have `least` rows more; ``None``: impossible.

    For each of them the cheapest change of the table that keeps all sums: cells that change must be hidden (Kelly,
    Golden and Assad, 1992). With `zeros` all empty cells are hidden, and then a hidden cell may be empty.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack

    hidden: Flags = np.asarray(sensitive | ((counts == 0) & ~sums.public & zeros))
    lowest = 0.0 if zeros else 1.0
    ranges = _Ranges(counts, sums, lowest)
    ranges.widen(hidden, least)
    free = ~sums.public & ((counts > 0) | zeros)
    # To hide a total costs more: it is about more cells.
    totals = (sums.relations < 0).any(axis=0)
    cost = (1.0 + counts / max(1.0, counts.max(initial=1.0))) * np.where(totals, 4.0, 1.0)
    A = csr_array(sums.relations.astype(np.float64))
    A, b = hstack([A, -A]), np.zeros(len(sums.relations))
    most = np.where(free, np.inf, 0.0)
    drop = np.where(free, np.maximum(counts - lowest, 0.0), 0.0)
    for cell in np.flatnonzero(sensitive)[np.argsort(counts[sensitive], kind="stable")].tolist():
        if ranges.width[cell] >= least:
            continue
        price = np.where(hidden, 1e-6, cost)
        low, high = np.zeros(2 * len(counts)), np.r_[most, drop]
        low[cell] = high[cell] = least
        high[len(counts) + cell] = 0.0
        found = linprog(np.r_[price, price], A_eq=A, b_eq=b, bounds=np.stack([low, high], axis=1), method="highs-ds")
        if found.status != 0:
            return None
        change = found.x[: len(counts)] - found.x[len(counts) :]
        hidden = np.asarray(hidden | (np.abs(change) > _NONE))
        ranges.take(change)
    return hidden


def _without_known(counts: Cells, sums: CellSums, hidden: Flags) -> Flags:
    """Return the hidden cells without those that the visible cells determine: to hide these is of no use.

    They are empty, or alone in a sum; small ones are not among them.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    open_ = np.flatnonzero(hidden & (counts == 0))
    unknown = np.flatnonzero(hidden)
    used = sums.relations[:, hidden]
    A, counts_of = csr_array(used.astype(np.float64)), counts[hidden].astype(np.float64)
    while len(open_):
        # An empty cell that can have rows can have a few: this keeps the bounds of all others.
        wanted = np.isin(unknown, open_)
        most = np.where(wanted, 1.0, np.inf)
        found = linprog(
            -wanted.astype(np.float64), A_eq=A, b_eq=A @ counts_of, bounds=np.stack([np.zeros(len(most)), most], axis=1)
        )
        filled = unknown[wanted & (found.x > _NONE)] if found.status == 0 else open_
        if not len(filled):
            break
        open_ = np.setdiff1d(open_, filled)
    kept = hidden.copy()
    kept[open_] = False
    while True:
        alone = np.count_nonzero(sums.relations[:, kept], axis=1) == 1
        known = kept & sums.relations[alone].any(axis=0)
        if not known.any():
            return kept
        kept &= ~known


class _Ranges:
    """How far apart the numbers are that each cell has in tables with the same sums."""

    def __init__(self, counts: Cells, sums: CellSums, lowest: float) -> None:
        self._counts, self._sums, self._lowest = counts, sums, lowest
        self._low, self._high = np.zeros(len(counts)), np.zeros(len(counts))

    @property
    def width(self) -> NDArray[np.float64]:
        return self._high - self._low

    def take(self, change: NDArray[np.float64]) -> None:
        """Note one more table, by its difference from the true one."""
        self._low, self._high = np.minimum(self._low, change), np.maximum(self._high, change)

    def widen(self, hidden: Flags, least: int) -> None:
        """Note tables that differ in hidden cells alone: those at the ends of a few directions."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        unknown = np.flatnonzero(hidden)
        if len(unknown) < _FEW:
            return
        used = self._sums.relations[:, hidden]
        A = csr_array(used[used.any(axis=1)].astype(np.float64))
        bounds = np.stack([self._lowest - self._counts[hidden], np.full(len(unknown), 2.0 * least)], axis=1)
        rng = np.random.default_rng(0)
        for _ in range(_DIRECTIONS):
            goal = rng.choice([-1.0, 1.0], len(unknown)) * (self.width[unknown] < least)
            found = linprog(goal, A_eq=A, b_eq=np.zeros(A.shape[0]), bounds=bounds, method="highs-ds")
            if found.status == 0:
                change = np.zeros(len(hidden))
                change[unknown] = found.x
                self.take(change)


def shown(values: Cells, hidden: Flags) -> NDArray[np.float64]:
    """Return values with NaN in place of hidden ones."""
    return np.where(hidden, np.nan, values.astype(np.float64))


def hidden_in_table(
    counts: Cells,
    *,
    least: int,
    small: Sequence[bool] | None = None,
    public: Sequence[bool] | None = None,
    totals: bool = False,
) -> Flags:
    """Return which cells of a table (r, c), without margins, must be hidden where rows' totals and the total are known.

    Totals of columns are known as well. They are hidden where that is necessary: the last row of the result (r + 1, c).
    `small` (c,) are the columns whose small cells are hidden, `public` (c,) those that are never hidden. With `totals`
    those of the columns are not hidden as long as others will do.
    """
    rows, columns = counts.shape
    whole = np.zeros((rows + 1, columns + 1))
    whole[:-1, :-1] = counts
    whole[-1] = whole[:-1].sum(axis=0)
    whole[:, -1] = whole[:, :-1].sum(axis=1)
    wanted = np.ones((rows + 1, columns + 1), dtype=bool)
    wanted[:, :-1] = True if small is None else small
    wanted[:, -1] = False
    sums = table_sums(rows, columns, public_rows=True)
    if public is not None:
        sums.public.reshape(whole.shape)[:, :-1] |= np.asarray(public)
    sums.public.reshape(whole.shape)[-1] |= totals
    found = hidden_cells(whole.ravel(), sums, least=least, small=wanted.ravel()).reshape(whole.shape)
    return found[:, :-1]


def hidden_groups(rows: Cells, least: int) -> Flags:
    """Return which groups (1 + G,) are suppressed as a whole, by their numbers of rows."""
    if len(rows) == 1:
        return np.asarray((rows > 0) & (rows < least))
    hidden = hidden_cells(np.append(rows[1:], rows[1:].sum()), list_sums(len(rows) - 1), least=least)
    return np.append(hidden[-1], hidden[:-1])


def hidden_in_groups(
    counts: Cells,
    groups: Flags,
    least: int,
    small: Sequence[bool],
    public: Sequence[bool] | None = None,
    totals: bool = False,
) -> Flags:
    """Return which counts (1 + G, k) must be hidden, where `groups` (1 + G,) are hidden as a whole.

    The totals reveal what all hidden groups have together: that is a row of the table.
    """
    hidden = np.zeros(counts.shape, dtype=bool)
    hidden[groups] = True
    if groups[0]:
        return np.ones(counts.shape, dtype=bool)
    visible = np.flatnonzero(~groups[1:]) + 1
    rows = [counts[g] for g in visible] if len(counts) > 1 else [counts[0]]
    together = counts[1:][groups[1:]].sum(axis=0)
    if groups.any():
        rows.append(together)
    rows = [row for row in rows if row.any()]
    at = [g for g in visible.tolist() if counts[g].any()] if len(counts) > 1 else [0]
    if not rows:
        return hidden
    found = hidden_in_table(np.array(rows, dtype=np.float64), least=least, small=small, public=public, totals=totals)
    for g, cells in zip(at, found, strict=False):
        hidden[g] |= cells
    hidden[0] |= found[-1] if len(counts) > 1 else found[0]
    if groups.any() and rows[-1] is together:  # what hidden groups visibly do not have together, none of them has
        hidden[np.ix_(groups, (together == 0) & ~found[len(rows) - 1])] = False
    hidden[:, ~hidden[0] & (counts[0] == 0)] = False  # a total of 0 is 0 in every group
    return hidden


def hidden_values(rows: Cells, n: Cells, groups: Flags, least: int) -> tuple[Flags, Flags]:
    """Return which numbers of values (1 + G, d) of columns must be hidden, and which of missing ones.

    `rows` (1 + G,) are numbers of rows, `n` (1 + G, d) of values. Other tables of a run show the values of all groups
    together, so that these are hidden only if they are few themselves.
    """
    hidden = np.zeros((2, *n.shape), dtype=bool)
    for j, own in enumerate(n.T):
        counts = np.stack([own, rows - own], axis=1)
        hidden[:, :, j] = hidden_in_groups(counts, groups, least, [True, False], totals=True).T
    return hidden[0], hidden[1]


@dataclass(frozen=True)
class NameTable:
    """Names of a column that are listed, by place; counts (1 + G, names + 2) with other names and missing cells.

    `hidden` are the counts that are suppressed.
    """

    kept: list[int]
    counts: NDArray[np.float64]
    hidden: Flags


def name_table(counts: NDArray[np.int64], groups: Flags, *, most: int, least: int) -> NameTable:
    """Return the counts (1 + G, k + 2) of the `most` frequent of k names that `least` rows hold, and what is hidden.

    In a group where few rows have any name, none is shown; missing cells of the other groups are public.
    """
    names = counts.shape[1] - 2
    order = np.argsort(-counts[0, :names], kind="stable")[:most]
    kept = sorted(int(k) for k in order if counts[0, k] >= least)
    other = counts[:, :-1].sum(axis=1) - counts[:, kept].sum(axis=1)
    merged = np.column_stack([counts[:, kept], other, counts[:, -1]]).astype(np.float64)
    rows = counts.sum(axis=1)
    without = hidden_values(rows, (rows - counts[:, -1])[:, None], groups, least)
    few = groups | without[0][:, 0] | without[1][:, 0]
    missing = np.arange(merged.shape[1]) == merged.shape[1] - 1
    return NameTable(kept, merged, hidden_in_groups(merged, few, least, ~missing, missing))
