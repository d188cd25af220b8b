"""Printing to standard output: lines as they are, and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

#: Columns of an output that is no terminal.
_WIDTH = 120


def print_line(text: str) -> None:
    """Print one line, without marks or breaks."""
    _console().print(text, soft_wrap=True, highlight=False, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str], title: str = "") -> None:
    """Print a table; the columns named in `right` are aligned to the right."""
    table = Table(title=escape(title) or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if column in right else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*map(escape, row))
    _console().print(table)


def _console() -> Console:
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=_WIDTH)


def one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as one line, for `warnings.formatwarning`: its place in the code is of no use to a user."""
    return f"fedspan: warning: {' '.join(str(message).split())}\n"
