"""The parts of a reproduction: each is printed as a table, and drawn on the page. `remark` tells seeds and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.charts.scatter_3d import cloud
from fedspan.report.charts.still_map import still_map
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, esc, join, number, table

#: Points of a curve that are drawn.
MOST_POINTS = 400
Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table of text; `remark` says how many seeds and which setting is behind the numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return the columns and the rows."""
        return self.columns, self.rows

    def drawn(self) -> Html:
        """Return the table for the page."""
        return table(self.columns, [list(row) for row in self.rows])


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
    log_x: bool = False

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return a row for each x."""
        rows = [[f"{x:g}", *(self._cell(name, i) for name in self.lines)] for i, x in enumerate(self.x)]
        return [self.x_label, *self.lines], rows

    def drawn(self) -> Html:
        """Return the chart for the page."""
        lines = [Line(name, self.x, y, colour) for colour, (name, y) in enumerate(self.lines.items())]
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
    zero: bool = True

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return a row for each x of `at`; nothing where a curve has ended."""
        rows = [[f"{x:g}", *(_between(x, *line, log=self.log) for line in self.lines.values())] for x in self.at]
        return [self.x_label, *self.lines], rows

    def drawn(self) -> Html:
        """Return the chart for the page, of at most 400 points a curve."""
        lines = [
            Line(name, *thinned(list(x), list(y), MOST_POINTS), colour)
            for colour, (name, (x, y)) in enumerate(self.lines.items())
        ]
        return _chart(lines, self.title, self.x_label, log=self.log, zero=self.zero and not self.log)


@dataclass(frozen=True)
class Bars:
    """One number for each name."""

    title: str
    x_label: str
    values: Mapping[str, float]
    remark: str

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
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

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
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
            key = list(enumerate(groups))
            drawn.append(figure(name, cloud(list(groups.values()), self.axes, label=f"{self.title}: {name}"), key=key))
        return charts(drawn)


@dataclass(frozen=True)
class Maps:
    """Maps of the same rows, side by side: places (n, 2) by name, and the group of each row."""

    title: str
    groups: Sequence[int] | NDArray[np.int64]
    maps: Mapping[str, Sequence[Sequence[float]] | NDArray[np.float64]]
    remark: str

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return what is to be seen on the page."""
        return ["map", "rows drawn"], [[name, str(len(places))] for name, places in self.maps.items()]

    def drawn(self) -> Html:
        """Return the maps side by side."""
        groups = np.asarray(self.groups)
        drawn = [(name, still_map(np.asarray(places), groups, label=name)) for name, places in self.maps.items()]
        return charts([figure(name, picture) for name, picture in drawn])


@dataclass(frozen=True)
class Words:
    """What the numbers say: a heading and paragraphs."""

    title: str
    paragraphs: Sequence[str]
    remark: str = ""

    def printed(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return a row for each paragraph."""
        return [""], [[text] for text in self.paragraphs]

    def drawn(self) -> Html:
        """Return the paragraphs for the page."""
        return join(Html(f"<p>{esc(text, 5000)}</p>") for text in self.paragraphs)


Part = Table | Chart | Curves | Bars | Clouds | Maps | Words


def _chart(lines: Sequence[Line], title: str, x_label: str, *, log: bool, zero: bool, log_x: bool = False) -> Html:
    drawn = line_chart(lines, label=title, x_label=x_label, zero=zero, log=log, log_x=log_x)
    return charts([figure("", drawn, key=[(line.colour, line.name) for line in lines])])


def _shown(value: float) -> str:
    """Return a number with four decimals, or in powers of ten where these would not tell it from zero."""
    return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.4f}"


def _between(x: float, xs: Values, ys: Values, *, log: bool) -> str:
    if not min(xs) <= x <= max(xs):
        return ""
    value = float(np.interp(x, xs, ys))
    return _shown(value) if log else f"{value:.4f}"
