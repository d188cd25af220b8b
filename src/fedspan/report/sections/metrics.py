"""The section on what the protocols logged: a chart for every number that changes, a list for the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from statistics import median
from typing import Any

from fedspan.federation.record import RunRecord
from fedspan.report.charts.axes import drawable
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.svg import SERIES, charts, figure
from fedspan.report.charts.thinning import thinned
from fedspan.report.markup import Html, count, note, number, plural, section, table
from fedspan.report.sections.call_totals import run_names
from fedspan.report.sections.rounds import turns

MOST_CHARTS = 12
MOST_LINES = 8
MOST_TEXTS = 30
MOST_MARKS = 12
MOST_LOOPS = 40
POINTS = 240
CALLS, ROUNDS, THROUGH = "call", "round", "round, counted through the run"
# A record that was read back from its file has these as text, because JSON has no word for them.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass
class Logged:
    """The values of one metric in one run: numbers with their round or call, and texts.

    `starts` says with which numbers a loop of the run begins: what is logged in two loops is two curves.
    """

    run: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    skipped: int = 0
    x_label: str = ROUNDS


def metrics_section(records: Sequence[RunRecord]) -> Html:
    """Return the metrics: numbers as charts, one a name, and what was logged once or as text in a table."""
    names = list(dict.fromkeys(name for record in records for entry in record.metrics for name in entry.values))
    if not names:
        return section("metrics", "Metrics", lead="Nothing was logged.")
    figures: list[Html] = []
    rows: list[list[object]] = []
    left_out = 0
    for name in names:
        logged = [
            one for run, record in zip(run_names(records), records, strict=True) if (one := read(record, run, name))
        ]
        lines = [one for one in logged if len(one.y) > 1]
        room = len(figures) < MOST_CHARTS
        if lines and room:
            figures.append(_figure(name, lines))
        left_out += bool(lines) and not room
        rows += [[name, one.run, _words(one)] for one in logged if len(one.y) <= 1 or not room]
    parts = [charts(figures)] if figures else []
    if left_out:
        parts.append(note(f"{plural(left_out, 'more metric')} would make a chart; the last values are in the table."))
    if rows:
        parts.append(table(["metric", "run", "value"], rows[:MOST_TEXTS], texts=3))
    if len(rows) > MOST_TEXTS:
        parts.append(note(f"and {plural(len(rows) - MOST_TEXTS, 'more value')}"))
    return section("metrics", "Metrics", *parts, lead="What the protocols logged along the way.")


def read(record: RunRecord, run: str, name: str) -> Logged | None:
    """Return what a run logged under `name`, or None. Over rounds where each value has one, else over calls.

    Rounds are counted through the run where more than one of its loops logs the name.

    Examples
    --------
    >>> from fedspan.federation.record import Metrics
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=())
    >>> record.metrics += [Metrics(0, 0, {"loss": 2.0}), Metrics(1, 1, {"loss": float("nan")})]
    >>> read(record, "demo", "loss")
    Logged(run='demo', x=[0.0], y=[2.0], starts=[0], texts=[], skipped=1, x_label='round')
    """
    found = zip(record.metrics, turns(record).metrics, strict=True)
    entries = [(entry, turn) for entry, turn in found if name in entry.values]
    if not entries:
        return None
    loops = {None if turn is None else turn.loop for _, turn in entries}
    over = CALLS if None in loops else ROUNDS if len(loops) == 1 else THROUGH
    logged = Logged(run, x_label=over)
    last = None
    for entry, turn in entries:
        value = _float(entry.values[name])
        if value is None:
            logged.texts.append(str(entry.values[name]))
        elif drawable(value):
            loop = turn.loop if turn is not None and over == THROUGH else 0
            if loop != last:
                logged.starts.append(len(logged.y))
            last = loop
            place = {CALLS: entry.call, ROUNDS: entry.round, THROUGH: turn and turn.number}[over]
            logged.x.append(float(place or 0))
            logged.y.append(value)
        else:
            logged.skipped += 1
    return logged


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number with more than 308 digits
        return math.inf


def _figure(name: str, logged: Sequence[Logged]) -> Html:
    shown = logged[:MOST_LINES]
    points = max(40, POINTS // len(shown))
    lines = [line for i, one in enumerate(shown) for line in _curves(one, i % SERIES, points)]
    values = [y for line in lines for y in line.y]
    # A ramp from 0.1 to 1000 is fine as it is; a decay, whose values are mostly small, is not.
    log = min(values) > 0 and max(values) >= 1000 * min(values) and max(values) >= 20 * median(values)
    labels = {one.x_label for one in shown}
    loops = max(len(one.starts) for one in shown)
    marks = [(shown[0].x[start], "") for start in shown[0].starts]
    marked = len(shown) == 1 and 1 < loops <= MOST_MARKS
    chart = line_chart(
        lines,
        label=f"{name} over time",
        x_label=labels.pop() if len(labels) == 1 else "round or call" if CALLS in labels else ROUNDS,
        log=log,
        marks=marks if marked else [],
    )
    begin = ", which begin at the dotted lines" if marked else ""
    which = f"the last {MOST_LOOPS} of " if loops > MOST_LOOPS else ""
    remarks = [f"a curve for each of {which}{count(loops)} loops{begin}"] if loops > 1 and len(shown) == 1 else []
    remarks += (
        [f"a curve for each of {which or 'the '}loops of a run, one after another"]
        if loops > 1 and len(shown) > 1
        else []
    )
    remarks += ["logarithmic axis"] if log else []
    skipped = sum(one.skipped for one in shown)
    if skipped:
        values_were = "value that is" if skipped == 1 else "values that are"
        remarks.append(f"{count(skipped)} {values_were} not finite {'is' if skipped == 1 else 'are'} not drawn")
    texts = sum(len(one.texts) for one in shown)
    if texts:
        remarks.append(f"{plural(texts, 'value')} in words not drawn")
    if len(logged) > MOST_LINES:
        remarks.append(f"the first {MOST_LINES} of {count(len(logged))} runs")
    last = f"{number(shown[-1].y[-1])} at the end"
    key = [(i % SERIES, one.run) for i, one in enumerate(shown)] if len(shown) > 1 else []
    return figure(name, chart, remark="; ".join([last, *remarks]), key=key)


def _curves(logged: Logged, colour: int, points: int) -> list[Line]:
    """Return a line for each of the last loops."""
    starts = logged.starts[-MOST_LOOPS:]
    ends = [*starts[1:], len(logged.y)]
    most = max(4, points // len(ends))
    stretches = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    return [Line(logged.run, *thinned(logged.x[some], logged.y[some], most), colour=colour) for some in stretches]


def _words(logged: Logged) -> str:
    parts = [number(logged.y[-1])] if logged.y else []
    distinct = list(dict.fromkeys(logged.texts))
    parts += (
        [", ".join(distinct[:5]) + (f" and {count(len(distinct) - 5)} others" if len(distinct) > 5 else "")]
        if distinct
        else []
    )
    parts += [f"{plural(logged.skipped, 'value')} not finite"] if logged.skipped else []
    return "; ".join(parts)
