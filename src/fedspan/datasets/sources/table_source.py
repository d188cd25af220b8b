"""What all sources of tables have in common, and how Arrow tables become frames of plain columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from fedspan.datasets.sources.row_filter import RowFilter

#: Takes the names of all columns, and returns those to read, or refuses.
Choose = Callable[[Sequence[str]], Sequence[str]]

#: Tables are read in batches of about this many cells.
BATCH_CELLS = 2**21
_FEWEST_ROWS, _MOST_ROWS = 512, 2**16


class TableSource(Protocol):
    """Where one table is."""

    @property
    def label(self) -> str:
        """What messages call it. Holds no secret."""

    def read(self, choose: Choose | None = None, where: RowFilter | None = None) -> pd.DataFrame:
        """Read the chosen columns of the rows that `where` keeps."""

    def stamp(self) -> object:
        """Return a value that changes when the table may have changed; ``None`` where that can't be known."""

    def gone(self) -> bool:
        """Return whether the table certainly no longer exists, without reading it."""


def batch_rows(columns: int) -> int:
    """Return the number of rows of a batch with this number of columns."""
    return min(_MOST_ROWS, max(_FEWEST_ROWS, BATCH_CELLS // max(1, columns)))


def chosen(names: Sequence[str], choose: Choose | None, label: str) -> list[str]:
    """Return the chosen columns; refuse a name that two columns have."""
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"{label} has two columns named {name!r}: rename one of them")
    return list(names if choose is None else choose(names))


def read_batches(
    batches: Iterable[pa.RecordBatch | pa.Table], wanted: Sequence[str], where: RowFilter | None, label: str
) -> pd.DataFrame:
    """Return the wanted columns of the rows that `where` keeps, as one frame of plain columns.

    Every batch must have the columns of the filter, too; only what is kept stays in memory.
    """
    import pyarrow as pa

    tables = (batch if isinstance(batch, pa.Table) else pa.table(batch) for batch in batches)
    found = (table if where is None else where.kept(table, label) for table in tables)
    kept = [table.select(list(wanted)) for table in found if len(table)]
    if not kept:
        import pandas as pd

        return pd.DataFrame({name: [] for name in wanted}, dtype=float)
    whole = pa.concat_tables(kept, promote_options="permissive")
    return as_frame(whole, label)


def as_frame(table: pa.Table, label: str) -> pd.DataFrame:
    """Return an Arrow table as a pandas frame of numbers, text, times and durations.

    Examples
    --------
    >>> import pyarrow as pa
    >>> as_frame(pa.table({"n": [1, None], "word": ["a", None]}), "demo")["n"].tolist()
    [1.0, nan]
    """
    import pyarrow as pa

    columns = [_plain(table.column(name), name, label) for name in table.column_names]
    whole = pa.table(columns, names=table.column_names)
    frame: pd.DataFrame = whole.to_pandas(date_as_object=False, types_mapper=None)
    for name, dtype in frame.dtypes.items():
        if dtype.kind in "mM":
            frame[name] = frame[name].astype(np.dtype(f"{dtype.kind}8[us]"))
    return frame


def _plain(column: pa.ChunkedArray, name: str, label: str) -> pa.ChunkedArray:
    """Return a column in a type that becomes a plain one in pandas."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_null(kind) or types.is_decimal(kind) or types.is_float16(kind):
        return column.cast(pa.float64())
    if types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64()) if column.null_count else column
    if types.is_integer(kind):
        return column.cast(pa.float64(), safe=False) if column.null_count else column
    if types.is_floating(kind) or types.is_duration(kind) or types.is_string(kind):
        return column
    if types.is_large_string(kind) or types.is_time(kind) or str(kind).startswith("string"):
        return column.cast(pa.string())
    if types.is_date(kind):
        return column.cast(pa.timestamp("us"))
    if types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.timestamp("us"))
    if isinstance(kind, getattr(pa, "UuidType", ())):  # since pyarrow 18
        import uuid

        texts = [None if cell is None else str(uuid.UUID(bytes=bytes(cell))) for cell in _cells(column)]
        return pa.chunked_array([pa.array(texts, pa.string())])
    raise InputError(f"{label}: column {name!r} is of type {kind}, and must hold numbers, text, times or durations")


def _cells(column: pa.ChunkedArray) -> Iterator[Any]:
    for chunk in column.chunks:
        yield from chunk.storage.to_pylist()
