"""Reading tables where they live: files (CSV, JSON lines, Parquet, Feather, Excel, NPZ), databases, and SQL on files.

A table becomes a pandas frame of plain columns: numbers, text, times and durations. Missing numbers are NaN; whole
numbers and truth values with gaps become floats, and so do decimals. Missing cells of text stay missing. Files are read
by pyarrow; rows are chosen by SQL conditions, which DuckDB evaluates.
"""

from __future__ import annotations

from fedspan.datasets.sources.csv_dialect import Dialect, detected
from fedspan.datasets.sources.csv_table import Words
from fedspan.datasets.sources.file_source import (
    CSV_ENDINGS,
    ENDINGS,
    FileSource,
    missing_words,
    read_as_shown,
    read_table,
)
from fedspan.datasets.sources.query_source import QuerySource
from fedspan.datasets.sources.row_filter import RowFilter
from fedspan.datasets.sources.sql_source import SqlSource
from fedspan.datasets.sources.streamed_table import stream
from fedspan.datasets.sources.table_source import TableSource

__all__ = [
    "CSV_ENDINGS",
    "ENDINGS",
    "Dialect",
    "FileSource",
    "QuerySource",
    "RowFilter",
    "SqlSource",
    "TableSource",
    "Words",
    "detected",
    "missing_words",
    "read_as_shown",
    "read_table",
    "stream",
]
