"""Printing to standard output: lines as they are, and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedspan.checks import printable

if TYPE_CHECKING:
    import pandas as pd

#: Columns of an output that is not a terminal.
_WIDTH = 120


def spreadsheet_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no spreadsheet takes for a formula: such texts get an apostrophe in front.

    Names of groups, columns and categories come from other sites.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value

    cells: pd.DataFrame = frame.apply(lambda column: column if column.dtype.kind in "biufMm" else column.map(plain))
    for name, axis in (("index", frame.index), ("columns", frame.columns)):
        if len(axis) and axis.dtype.kind not in "biufMm":
            setattr(cells, name, axis.map(plain).set_names(axis.names))
    return cells


def print_line(text: str) -> None:
    """Print one line, without marks or breaks."""
    _console().print(printable(text), soft_wrap=True, highlight=False, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str], title: str = "") -> None:
    """Print a table; the columns named in `right` are aligned to the right."""
    table = Table(title=escape(title) or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if column in right else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    _console().print(table)


def _console() -> Console:
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=_WIDTH)


def one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as one line, for `warnings.formatwarning`: its place in the code is of no use to a user."""
    return f"fedspan: warning: {printable(' '.join(str(message).split()))}\n"
