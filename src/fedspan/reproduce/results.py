"""What a reproduction found: tables and charts that are printed, and saved as one page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from fedspan.errors import InputError
from fedspan.report.charts import Line, line_chart
from fedspan.report.markup import Html, esc, join, note, section, table
from fedspan.report.page import shell, write_page
from fedspan.report.svg import charts, figure


@dataclass(frozen=True)
class Table:
    """A table of text; `remark` says how many seeds and which setting is behind the numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str


@dataclass(frozen=True)
class Chart:
    """Lines by name over x, with their deviations over seeds where these are known; `remark` as for a table."""

    title: str
    x_label: str
    x: Sequence[float]
    lines: dict[str, Sequence[float]]
    remark: str
    log: bool = False
    deviations: dict[str, Sequence[float]] = field(default_factory=dict)


@dataclass
class Results:
    """All that one reproduction found."""

    title: str
    lead: str
    parts: list[Table | Chart] = field(default_factory=list)

    def print(self) -> None:
        """Print the tables, and the charts as tables."""
        console = Console()
        if not console.is_terminal:  # a file has room for the whole width
            console = Console(width=150)
        for part in self.parts:
            shown = RichTable(title=part.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
            for i, column in enumerate(_columns(part)):
                shown.add_column(column, justify="left" if i == 0 else "right")
            for row in _rows(part):
                shown.add_row(*row)
            console.print(shown)
            console.print(part.remark + "\n", highlight=False)

    def save(self, folder: Path) -> Path:
        """Write ``results.json`` and ``report.html`` into `folder`, and return the page."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        body = [Html(f'<h1>{esc(self.title)}</h1><p class="result">{esc(self.lead)}</p>')]
        for number, part in enumerate(self.parts):
            inside = _drawn(part) if isinstance(part, Chart) else table(part.columns, [list(row) for row in part.rows])
            body.append(section(f"part{number}", part.title, inside, note(part.remark)))
        page = folder / "report.html"
        write_page(page, shell(self.title, join(body)))
        return page


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean and standard deviation of values over seeds."""
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise InputError("there is nothing to take the mean of")
    return f"{array.mean():.{digits}f} ± {array.std():.{digits}f}"


def _columns(part: Table | Chart) -> Sequence[str]:
    return part.columns if isinstance(part, Table) else [part.x_label, *part.lines]


def _rows(part: Table | Chart) -> Sequence[Sequence[str]]:
    if isinstance(part, Table):
        return part.rows
    return [[f"{x:g}", *(_cell(part, name, i) for name in part.lines)] for i, x in enumerate(part.x)]


def _cell(part: Chart, name: str, i: int) -> str:
    deviation = part.deviations.get(name)
    return f"{part.lines[name][i]:.4f}" + ("" if deviation is None else f" ± {deviation[i]:.4f}")


def _drawn(part: Chart) -> Html:
    lines = [Line(name, part.x, y, colour) for colour, (name, y) in enumerate(part.lines.items())]
    drawn = line_chart(lines, label=part.title, x_label=part.x_label, zero=not part.log, log=part.log)
    return charts([figure("", drawn, key=[(line.colour, line.name) for line in lines])])
