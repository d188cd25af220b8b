"""Results of a reproduction: parts that are printed as tables, and saved as one page and as JSON.

The `remark` of a part names the seeds and the setting behind its numbers.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fedspan.errors import InputError
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.charts.scatter_3d import cloud
from fedspan.report.charts.still_map import still_map
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, esc, join, note, number, plural, section, table
from fedspan.report.page import write_page

#: Points of a curve that are drawn.
MOST_POINTS = 400
Values = Sequence[float] | NDArray[np.float64]
Printed = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Table:
    """A table of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str

    def printed(self) -> Printed:
        """Return the columns and the rows."""
        return self.columns, self.rows

    def drawn(self) -> Html:
        """Return the table for the page."""
        return table(self.columns, [list(row) for row in self.rows])


@dataclass(frozen=True)
class Chart:
    """Lines by name over the same x, with their deviations over seeds where these are known."""

    title: str
    x_label: str
    x: Sequence[float]
    lines: Mapping[str, Values]
    remark: str
    log: bool = False
    deviations: Mapping[str, Values] = field(default_factory=dict)
    log_x: bool = False

    @classmethod
    def over_seeds(
        cls, title: str, x_label: str, x: Sequence[float], found: Mapping[Any, Sequence[Any]], remark: str, **axes: bool
    ) -> Chart:
        """Return means and deviations of what was `found`: for each name, the values of all seeds at each x."""
        mean, deviation = (
            {name: [float(of(some)) for some in values] for name, values in found.items()} for of in (np.mean, np.std)
        )
        return cls(title, x_label, list(x), mean, remark, deviations=deviation, **axes)

    def printed(self) -> Printed:
        """Return a row for each x."""
        rows = [[f"{x:g}", *(self._cell(name, i) for name in self.lines)] for i, x in enumerate(self.x)]
        return [self.x_label, *self.lines], rows

    def drawn(self) -> Html:
        """Return the chart for the page."""
        lines = {name: (self.x, list(y)) for name, y in self.lines.items()}
        return _chart(lines, self.title, self.x_label, log=self.log, log_x=self.log_x, zero=not self.log)

    def _cell(self, name: str, i: int) -> str:
        deviation = self.deviations.get(name)
        return _shown(self.lines[name][i]) + ("" if deviation is None else f" ± {_shown(deviation[i])}")


@dataclass(frozen=True)
class Curves:
    """Curves by name, each over its own x, such as ROC curves or losses by the second: ``{name: (x, y)}``.

    `at` are the x at which they are printed, between their points by straight lines.
    """

    title: str
    x_label: str
    lines: Mapping[str, tuple[Values, Values]]
    remark: str
    at: Sequence[float]
    log: bool = False

    def printed(self) -> Printed:
        """Return a row for each x of `at`; the cell of a curve that has ended is empty."""
        rows = [[f"{x:g}", *(_between(x, *line, log=self.log) for line in self.lines.values())] for x in self.at]
        return [self.x_label, *self.lines], rows

    def drawn(self) -> Html:
        """Return the chart for the page, of at most 400 points a curve."""
        lines = {name: thinned(list(x), list(y), MOST_POINTS) for name, (x, y) in self.lines.items()}
        return _chart(lines, self.title, self.x_label, log=self.log, zero=not self.log)


@dataclass(frozen=True)
class Bars:
    """One number for each name."""

    title: str
    x_label: str
    values: Mapping[str, float]
    remark: str

    def printed(self) -> Printed:
        """Return a row for each name."""
        return [self.x_label, ""], [[name, f"{value:g}"] for name, value in self.values.items()]

    def drawn(self) -> Html:
        """Return the bars for the page."""
        rows = [[value] for value in self.values.values()]
        drawn = row_bars(list(self.values), rows, label=self.title, show=number, colours=[0])
        return charts([figure("", drawn)])


@dataclass(frozen=True)
class Clouds:
    """Points in three dimensions, one picture for each name: ``{picture: {group: (n, 3) coordinates}}``."""

    title: str
    axes: tuple[str, str, str]
    pictures: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
    remark: str

    def printed(self) -> Printed:
        """Return the middle of each group, by medians."""
        rows = [
            [name, group, *(f"{value:.3g}" for value in np.median(np.asarray(points), axis=0))]
            for name, groups in self.pictures.items()
            for group, points in groups.items()
        ]
        return ["picture", "median of", *self.axes], rows

    def drawn(self) -> Html:
        """Return the pictures side by side."""
        drawn = []
        for name, groups in self.pictures.items():
            picture = cloud(list(groups.values()), self.axes, label=f"{self.title}: {name}")
            drawn.append(figure(name, picture, key=list(enumerate(groups))))
        return charts(drawn)


@dataclass(frozen=True)
class Maps:
    """Maps of the same rows, side by side: places (n, 2) by name, and the group of each row."""

    title: str
    groups: Sequence[int] | NDArray[np.int64]
    maps: Mapping[str, Sequence[Sequence[float]] | NDArray[np.float64]]
    remark: str

    def printed(self) -> Printed:
        """Return the names of the maps on the page, and their sizes."""
        return ["map", "rows drawn"], [[name, str(len(places))] for name, places in self.maps.items()]

    def drawn(self) -> Html:
        """Return the maps side by side."""
        groups = np.asarray(self.groups)
        drawn = [(name, still_map(np.asarray(places), groups, label=name)) for name, places in self.maps.items()]
        return charts([figure(name, picture) for name, picture in drawn])


@dataclass(frozen=True)
class Words:
    """Conclusions from the numbers: a heading and paragraphs."""

    title: str
    paragraphs: Sequence[str]
    remark: str = ""

    def printed(self) -> Printed:
        """Return a row for each paragraph."""
        return [""], [[text] for text in self.paragraphs]

    def drawn(self) -> Html:
        """Return the paragraphs for the page."""
        return join(Html(f"<p>{esc(text, 5000)}</p>") for text in self.paragraphs)


Part = Table | Chart | Curves | Bars | Clouds | Maps | Words


@dataclass
class Results:
    """All parts of one reproduction."""

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
        text = json.dumps(asdict(self), indent=1, default=lambda value: value.tolist())  # of NumPy's arrays and numbers
        (folder / "results.json").write_text(text, encoding="utf-8")
        body = [Html(f'<h1>{esc(self.title)}</h1><p class="result">{esc(self.lead)}</p>')]
        for number_, part in enumerate(self.parts):
            remark = [note(part.remark, most=5000)] if part.remark else []
            body.append(section(f"part{number_}", part.title, part.drawn(), *remark))
        page = folder / "report.html"
        write_page(page, self.title, join(body))
        return page


@cache
def published(paper: str) -> Mapping[str, Any]:
    """Return the numbers that a paper published, from ``published.toml``."""
    found = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))[paper]
    return dict(found)


def counted(seeds: Sequence[int]) -> str:
    """Return the number of seeds, in words.

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
        raise InputError("there are no values to take the mean of")
    around = f" ± {array.std():.{digits}f}" if array.size > 1 else ""
    return f"{array.mean():.{digits}f}{around}"


def _chart(lines: Mapping[str, tuple[Any, Any]], title: str, x_label: str, **axes: Any) -> Html:
    coloured = [Line(name, x, y, colour) for colour, (name, (x, y)) in enumerate(lines.items())]
    drawn = line_chart(coloured, label=title, x_label=x_label, **axes)
    return charts([figure("", drawn, key=list(enumerate(lines)))])


def _shown(value: float) -> str:
    """Return a number with four decimals, or in powers of ten where it would look like zero."""
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.4f}"


def _between(x: float, xs: Values, ys: Values, *, log: bool) -> str:
    if not min(xs) <= x <= max(xs):
        return ""
    value = float(np.interp(x, xs, ys))
    return _shown(value) if log else f"{value:.4f}"
