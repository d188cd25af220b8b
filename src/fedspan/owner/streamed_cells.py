"""What a table that is read in blocks holds: of each column a few cells that show its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.arrays import Array
from fedspan.datasets.sources.table_source import as_frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def some_cells(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], label: str
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return a frame of a few cells of each column, and the numbers of missing ones.

    The frame has the types and kinds that one of all rows would have: of each sort of cell that a column has, it has
    one.
    """
    import pyarrow as pa

    found: dict[str, dict[str, pa.Array]] = {name: {} for name in names}
    missing: Counter[str] = Counter(dict.fromkeys(names, 0))
    for batch in batches:
        frame = as_frame(pa.table(batch), label)
        for name, cells in found.items():
            for sort, places in _sorts(frame[name]):
                if sort == "missing":
                    missing[name] += int(np.count_nonzero(places))
                if sort not in cells and places.any():
                    cells[sort] = batch.column(name).slice(int(places.argmax()), 1)
    most = max((len(cells) for cells in found.values()), default=0)
    columns = {}
    for name, cells in found.items():
        some = list(cells.values())
        columns[name] = pa.chunked_array([*some, *some[:1] * (most - len(some))], None if some else pa.float64())
    return as_frame(pa.table(columns), label), dict(missing)


def _sorts(column: pd.Series[Any]) -> Iterator[tuple[str, Array]]:
    """Yield the sorts of cells on which the kind of a column depends, and which of its cells are of each."""
    empty = column.isna().to_numpy()
    yield "missing", empty
    if getattr(column.dtype, "kind", "O") not in "iuf":
        yield "value", ~empty
        return
    values = column.to_numpy()
    whole = np.isfinite(values) & (np.floor(values) == values)
    bits = (values == 0) | (values == 1)
    yield "bit", bits
    yield "whole", whole & ~bits
    yield "fraction", ~empty & ~whole
