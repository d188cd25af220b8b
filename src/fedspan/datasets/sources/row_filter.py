"""Choosing rows by an SQL condition: ``age >= 18 and (ward in ('A', 'B') or dose is null)``.

DuckDB evaluates it, in a connection that can read no file and load no extension.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 10_000
_ROW = "fedspan row"  # a column beside the table's own


class RowFilter:
    """A condition on columns, in SQL.

    Parameters
    ----------
    text : str
        What may stand behind ``WHERE``. Names with other characters than letters, digits and underscores stand in
        double quotes, texts in single ones. A missing cell is ``null``: rows where the condition is unknown are left
        out.

    Examples
    --------
    >>> RowFilter("age >= 18 and ward in ('A', 'B')").columns
    ('age', 'ward')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if not text.strip() or len(text) > _LONGEST:
            raise InputError(f"where has {len(text):,} characters, and must have 1 to {_LONGEST:,}")
        _ = self.columns

    def __repr__(self) -> str:
        return f"RowFilter({self.text!r})"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the condition is about."""
        ((parsed,),) = safe_connection().execute("select json_serialize_sql(?::varchar)", [self._query]).fetchall()
        tree = json.loads(parsed)
        if tree.get("error"):
            raise InputError(f"where = {self.text!r} is no SQL condition: {tree.get('error_message', '')}")
        nodes = [statement["node"] for statement in tree["statements"]]
        found = list(_nodes(nodes[0].get("where_clause")))
        if len(nodes) > 1 or not found or any(node.get("class") == "SUBQUERY" for node in found):
            raise InputError(f"where = {self.text!r} must be one condition on the columns of a row, without a SELECT")
        names = [node["column_names"][-1] for node in found if node.get("class") == "COLUMN_REF"]
        if not names:
            raise InputError(f"where = {self.text!r} names no column")
        return tuple(dict.fromkeys(names))

    def kept(self, table: pa.Table, label: str) -> pa.Table:
        """Return the rows of a table for which the condition is true, in their order."""
        import duckdb
        import pyarrow as pa

        connection = safe_connection()
        connection.register("rows", table.append_column(_ROW, pa.array(range(len(table)), pa.int64())))
        try:
            found = connection.sql(self._query.replace("*", f'"{_ROW}"', 1)).to_arrow_table()
            return table.take(found.column(0))  # DuckDB would return durations in another type
        except (duckdb.BinderException, duckdb.CatalogException) as error:  # about names and types
            reason = str(error).partition("\n")[0]
        except duckdb.Error:  # whose text may hold a cell
            reason = "it compares a column with a value of another kind"
        raise InputError(f"where = {self.text!r} can't be used for {label}: {reason}")

    @property
    def _query(self) -> str:
        return f"select * from rows where ({self.text}\n)"


def safe_connection() -> Any:
    """Return a DuckDB that can read no file, reach no network and load no extension."""
    try:
        import duckdb
    except ImportError:
        raise InputError("SQL on files, and 'where', need DuckDB: pip install '.[tables]' in a checkout") from None
    safe = {"enable_external_access": "false", "autoinstall_known_extensions": "false", "threads": "1"}
    return duckdb.connect(":memory:", config={**safe, "lock_configuration": "true"})


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for part in tree.values():
            yield from _nodes(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _nodes(part)
