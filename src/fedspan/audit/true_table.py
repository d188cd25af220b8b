"""The true rows that an audit measures by and searches for: numeric columns, columns of text, and the rows' sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix


@dataclass(frozen=True)
class TrueTable:
    """The true rows: the numeric columns (n, m), the texts of each other column, and the rows' sites where known.

    `guessed` states that the sites follow from the order of the rows alone, which may be another one.
    """

    numbers: Matrix = field(repr=False)
    texts: tuple[tuple[str, ...], ...] = field(repr=False)
    names: tuple[str, ...]
    sites: Array | None = field(default=None, repr=False)
    guessed: bool = False

    def ordered(self, order: Any, sizes: Mapping[str, int]) -> TrueTable:
        """Return the rows in another order; where their sites are not given, they are in the order of the sites."""
        sites = self.sites
        if sites is None and sum(sizes.values()) == len(self.numbers):
            sites = np.repeat(sorted(sizes), [sizes[name] for name in sorted(sizes)])
        texts = tuple(tuple(np.array(column, dtype=object)[order]) for column in self.texts)
        return TrueTable(self.numbers[order], texts, self.names, sites, guessed=self.sites is None)


NO_TABLE = TrueTable(np.empty((0, 0)), (), ())


def true_table(truth: Any) -> TrueTable:
    """Return the columns of true rows: an array, a data frame, or a mapping from sites to these."""
    if isinstance(truth, Mapping):
        tables = [true_table(truth[name]) for name in sorted(truth)]
        joined = zip(*(table.texts for table in tables), strict=True)
        return TrueTable(
            np.concatenate([table.numbers for table in tables]),
            tuple(tuple(cell for part in parts for cell in part) for parts in joined),
            tables[0].names,
            np.repeat(sorted(truth), [len(table.numbers) for table in tables]),
        )
    cells = np.asarray(truth)
    cells = cells[:, None] if cells.ndim == 1 else cells
    columns, texts = [], []
    for column in cells.T if cells.ndim == 2 else ():
        try:
            columns.append(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError):
            texts.append(tuple(str(cell) for cell in column))
    numbers = np.column_stack(columns) if columns else np.empty((len(cells), 0))
    return TrueTable(numbers, tuple(texts), tuple(map(str, getattr(truth, "columns", ()))))
