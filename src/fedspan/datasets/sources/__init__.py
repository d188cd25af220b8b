"""Reading tables where they live: CSV, Parquet and NPZ files, and SQL queries, in batches.

A table becomes a pandas frame of plain columns: numbers (missing ones are NaN; whole numbers and truth values with
gaps become floats, decimals too), text (missing cells stay missing), times and durations. Only what is kept of a batch
stays in memory; a large table is put together column by column, without a second copy of all of it.
"""

from __future__ import annotations

from fedspan.datasets.sources.row_filter import RowFilter
from fedspan.datasets.sources.sql_query import SqlSource
from fedspan.datasets.sources.table_files import ENDINGS, FileSource, read_table
from fedspan.datasets.sources.table_source import Source

__all__ = ["ENDINGS", "FileSource", "RowFilter", "Source", "SqlSource", "read_table"]
