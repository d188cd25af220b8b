"""What a reproduction found: tables and charts that are printed, and saved as one page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fedspan.errors import InputError
from fedspan.papers.parts_paper import Bars, Chart, Clouds, Curves, Maps, Part, Table, Words
from fedspan.report.markup import Html, esc, join, note, plural, section
from fedspan.report.page import write_page

__all__ = ["Bars", "Chart", "Clouds", "Curves", "Maps", "Part", "Results", "Table", "Words", "counted", "spread"]


@dataclass
class Results:
    """All that one reproduction found."""

    title: str
    lead: str
    parts: list[Part] = field(default_factory=list)

    def print(self) -> None:
        """Print the parts, charts as tables."""
        console = Console()
        if not console.is_terminal:  # a file has room for the whole width
            console = Console(width=170)
        for part in self.parts:
            columns, rows = part.printed()
            console.print(f"[italic]{escape(part.title)}[/italic]", highlight=False)  # not wrapped to the table's width
            shown = RichTable(box=SIMPLE_HEAD, padding=(0, 1), show_header=any(columns))
            for i, column in enumerate(columns):
                shown.add_column(escape(column), justify="left" if i == 0 else "right")
            for row in rows:
                shown.add_row(*map(escape, row))
            console.print(shown)
            console.print(part.remark + "\n", highlight=False)

    def save(self, folder: Path) -> Path:
        """Write ``results.json`` and ``report.html`` into `folder`, and return the page."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(asdict(self), indent=1, default=_plain), encoding="utf-8")
        body = [Html(f'<h1>{esc(self.title)}</h1><p class="result">{esc(self.lead)}</p>')]
        for number, part in enumerate(self.parts):
            remark = [note(part.remark, most=5000)] if part.remark else []
            body.append(section(f"part{number}", part.title, part.drawn(), *remark))
        page = folder / "report.html"
        write_page(page, self.title, join(body))
        return page


def counted(seeds: Sequence[int]) -> str:
    """Return how many seeds these are, in words.

    Examples
    --------
    >>> counted(range(1)), counted(range(3))
    ('1 seed', '3 seeds')
    """
    return plural(len(seeds), "seed")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean and standard deviation of values over seeds; of one value, itself.

    Examples
    --------
    >>> spread([0.25]), spread([0.1, 0.2])
    ('0.250', '0.150 ± 0.050')
    """
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise InputError("there is nothing to take the mean of")
    around = f" ± {array.std():.{digits}f}" if array.size > 1 else ""
    return f"{array.mean():.{digits}f}{around}"


def _plain(value: Any) -> Any:
    """Return arrays and NumPy's numbers as JSON knows them."""
    return value.tolist()
