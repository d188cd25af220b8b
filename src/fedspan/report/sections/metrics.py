"""The section on what the protocols logged: a chart for every number that changes, a table for the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from statistics import median
from typing import Any

from fedspan.federation.record import RunRecord
from fedspan.report.charts.axes import drawable
from fedspan.report.charts.line_charts import POINTS, Line, line_chart, thinned
from fedspan.report.charts.svg import SERIES, charts, figure
from fedspan.report.markup import Html, PageSection, count, few, more, note, number, plural, section, table
from fedspan.report.sections.call_totals import round_index, run_names

MOST_CHARTS = 12
MOST_LINES = 8
MOST_TEXTS = 30
MOST_MARKS = 12
MOST_LOOPS = 40
CALLS, ROUNDS, THROUGH = "call", "round", "round, counted through the run"


@dataclass
class Logged:
    """The values of one metric in one run: numbers with their round or call, and texts.

    `starts` are the places in `y` where a loop of the run begins: what two loops log is two curves.
    """

    run: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    skipped: int = 0
    x_label: str = ROUNDS

    def __str__(self) -> str:
        parts = [number(self.y[-1])] if self.y else []
        parts += [few(self.texts, 5)] if self.texts else []
        parts += [f"{plural(self.skipped, 'value')} not finite"] if self.skipped else []
        return "; ".join(parts)

    def curves(self, colour: int, points: int) -> list[Line]:
        """Return a line for each of the last loops."""
        starts = self.starts[-MOST_LOOPS:]
        ends = [*starts[1:], len(self.y)]
        most = max(4, points // len(ends))
        parts = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
        return [Line(self.run, *thinned(self.x[part], self.y[part], most), colour=colour) for part in parts]


def metrics_section(records: Sequence[RunRecord]) -> PageSection:
    """Return the metrics: one chart for each name, and a table of what was logged once or as text."""
    names = list(dict.fromkeys(name for record in records for entry in record.metrics for name in entry.values))
    if not names:
        return section("metrics", "Metrics", lead="Nothing was logged.")
    figures: list[Html] = []
    rows: list[list[object]] = []
    left_out = 0
    for name in names:
        runs = zip(run_names(records), records, strict=True)
        logged = [found for run, record in runs if (found := read(record, run, name)) is not None]
        curves = [one for one in logged if len(one.y) > 1]
        drawn = bool(curves) and len(figures) < MOST_CHARTS
        if drawn:
            figures.append(_figure(name, curves))
        left_out += bool(curves) and not drawn
        rows += [[name, one.run, str(one)] for one in logged if len(one.y) <= 1 or not drawn]
    parts = [charts(figures)] if figures else []
    if left_out:
        parts.append(note(f"{plural(left_out, 'more metric')} would make a chart; the last values are in the table."))
    if rows:
        parts.append(table(["metric", "run", "value"], rows[:MOST_TEXTS], texts=3))
    parts += more(len(rows) - MOST_TEXTS, "value")
    return section("metrics", "Metrics", *parts, lead="What the protocols logged.")


def read(record: RunRecord, run: str, name: str) -> Logged | None:
    """Return what a run logged under `name`, or None. Over rounds where each value has one, else over calls.

    Rounds are counted through the run where more than one of its loops logs the name.
    """
    found = zip(record.metrics, round_index(record).metrics, strict=True)
    entries = [(entry, turn) for entry, turn in found if name in entry.values]
    if not entries:
        return None
    loops = {None if turn is None else turn.loop for _, turn in entries}
    logged = Logged(run, x_label=CALLS if None in loops else ROUNDS if len(loops) == 1 else THROUGH)
    last = None
    for entry, turn in entries:
        value = _float(entry.values[name])
        if value is None:
            logged.texts.append(str(entry.values[name]))
        elif not drawable(value):
            logged.skipped += 1
        else:
            loop, place = 0, entry.call if logged.x_label == CALLS else entry.round
            if turn is not None and logged.x_label == THROUGH:
                loop, place = turn.loop, turn.number
            logged.starts += [len(logged.y)] if loop != last else []
            last = loop
            logged.x.append(float(place or 0))
            logged.y.append(value)
    return logged


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number with more than 308 digits
        return math.inf


def _figure(name: str, logged: Sequence[Logged]) -> Html:
    shown = logged[:MOST_LINES]
    lines = [line for i, one in enumerate(shown) for line in one.curves(i % SERIES, max(40, POINTS // len(shown)))]
    values = [y for line in lines for y in line.y]
    # A ramp from 0.1 to 1000 needs no logarithms; a decay, whose values are mostly small, does.
    log = min(values) > 0 and max(values) >= 1000 * min(values) and max(values) >= 20 * median(values)
    labels = {one.x_label for one in shown}
    loops = max(len(one.starts) for one in shown)
    marked = len(shown) == 1 and 1 < loops <= MOST_MARKS
    chart = line_chart(
        lines,
        label=f"{name} over time",
        x_label=labels.pop() if len(labels) == 1 else "round or call" if CALLS in labels else ROUNDS,
        log=log,
        marks=[(shown[0].x[start], "") for start in shown[0].starts] if marked else [],
    )
    remarks = [f"{number(shown[-1].y[-1])} at the end"]
    if loops > 1:
        which = f"the last {MOST_LOOPS} of " if loops > MOST_LOOPS else ""
        begin = ", which begin at the dotted lines" if marked else ""
        of = f"{which}{count(loops)} loops{begin}" if len(shown) == 1 else f"{which}the loops of a run"
        remarks.append(f"a curve for each of {of}")
    remarks += ["logarithmic axis"] if log else []
    skipped, texts = sum(one.skipped for one in shown), sum(len(one.texts) for one in shown)
    remarks += [f"not drawn: {plural(skipped, 'value')} not finite"] if skipped else []
    remarks += [f"not drawn: {plural(texts, 'text')}"] if texts else []
    remarks += [f"the first {MOST_LINES} of {count(len(logged))} runs"] if len(logged) > MOST_LINES else []
    key = [(i % SERIES, one.run) for i, one in enumerate(shown)] if len(shown) > 1 else []
    return figure(name, chart, remark="; ".join(remarks), key=key)
