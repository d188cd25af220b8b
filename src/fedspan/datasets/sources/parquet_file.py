"""Parquet files, part of a row group at a time, and only the columns that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedspan.datasets.sources.stacking import plain, stack
from fedspan.datasets.sources.table_source import Choose, Keep, batch_rows
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(file: Path, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
    """Read the chosen columns; the index that pandas may have written is none of them."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("reading Parquet needs pyarrow: install it with 'pip install fedspan[tables]'") from None
    with parquet.ParquetFile(file) as table:
        known = table.schema_arrow
        index = [name for name in (known.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        wanted = list(choose([name for name in known.names if name not in index]))
        return stack((keep(batch) for batch in _batches(table, wanted)), apart)


def _batches(table: Any, wanted: list[str]) -> Iterator[pd.DataFrame]:
    import pandas as pd

    none = True
    for batch in table.iter_batches(batch_size=batch_rows(len(wanted)), columns=wanted):
        none = False
        yield pd.DataFrame({name: _column(batch.column(name), name) for name in wanted}, copy=False)
    if none:
        yield pd.DataFrame(columns=wanted)


def _column(values: Any, name: str) -> Any:
    import pyarrow as arrow

    if arrow.types.is_decimal(values.type):
        values = values.cast(arrow.float64())
    if arrow.types.is_nested(values.type):
        raise InputError(f"column {name!r} holds {values.type}, which a table cannot hold: make text or numbers")
    column = values.to_pandas(date_as_object=False)
    column.name = name
    return plain(column)
