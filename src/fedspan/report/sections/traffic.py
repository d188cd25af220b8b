"""The section on rounds and bytes: every call, or every step where the calls are many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

from fedspan.federation.record import CallRecord, RunRecord
from fedspan.report.charts.axes import number_with
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.svg import charts, figure
from fedspan.report.charts.thinning import thinned
from fedspan.report.markup import Html, count, duration, esc, note, plural, section, size, table
from fedspan.report.sections.call_totals import StepTotals, by_step, run_names
from fedspan.report.sections.rounds import turns

MOST_CALLS = 50
MOST_STEPS = 50
MOST_BARS = 5
POINTS = 240
UP, DOWN, TIME = 0, 6, 4  # colours


def traffic_section(records: Sequence[RunRecord]) -> Html:
    """Return what each call or step asked and cost, with a chart of the bytes that travelled so far."""
    calls = [call for record in records for call in record.calls]
    if not calls:
        return section("rounds", "Rounds and bytes", lead="No call was made.")
    rounds = sum(turns(record).asked for record in records)
    within = f" in {plural(rounds, 'round')}" if rounds else ""
    lead = f"{plural(len(calls), 'call')}{within}. Bytes are those of the messages: up from the sites, down to them."
    body = _calls_table(records) if len(calls) <= MOST_CALLS else _steps_table(records)
    return section("rounds", "Rounds and bytes", charts([_so_far(records), *_bars(records)]), body, lead=lead)


def _so_far(records: Sequence[RunRecord]) -> Html:
    """Draw the bytes of all calls so far, over the calls of all runs in order."""
    calls = [call for record in records for call in record.calls]
    starts = [0, *accumulate(len(record.calls) for record in records)][:-1]
    lines = []
    for name, colour, sizes in (
        ("up", UP, [sum(call.bytes_up.values()) for call in calls]),
        ("down", DOWN, [sum(call.bytes_down.values()) for call in calls]),
    ):
        x, y = thinned(range(len(calls) + 1), [0, *accumulate(sizes)], POINTS)
        lines.append(Line(name, x, y, colour))
    marks = list(zip(map(float, starts), run_names(records), strict=True)) if 1 < len(records) <= 6 else []
    chart = line_chart(lines, label="bytes up and down so far", x_label="calls", zero=True, show=size, marks=marks)
    return figure("Bytes so far", chart, key=[(UP, "up"), (DOWN, "down")])


def _bars(records: Sequence[RunRecord]) -> list[Html]:
    """Draw the steps that moved the most bytes, and those that took the most time."""
    up: Counter[str] = Counter()
    down: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        for total in by_step(record):
            up[total.step] += total.up
            down[total.step] += total.down
            seconds[total.step] += total.seconds

    def drawn(
        title: str, values: dict[str, list[float]], show: Callable[[float], str], key: list[tuple[int, str]]
    ) -> Html:
        steps = sorted(values, key=lambda step: -sum(values[step]))[:MOST_BARS]
        chart = row_bars(
            _short_names(steps),
            [values[step] for step in steps],
            label=title,
            show=show,
            colours=[colour for colour, _ in key],
        )
        hidden = len(values) - len(steps)
        return figure(title, chart, remark=f"and {plural(hidden, 'step')} with less" if hidden else "", key=key)

    return [
        drawn("Bytes by step", {step: [up[step], down[step]] for step in up}, size, [(UP, "up"), (DOWN, "down")]),
        drawn(
            "Time by step", {step: [seconds[step]] for step in up}, duration, [(TIME, "from asking to the last answer")]
        ),
    ]


def _calls_table(records: Sequence[RunRecord]) -> Html:
    head = ["call", "step", "round", "answered", "bytes up", "bytes down", "seconds"]
    digits = _decimals(records)
    rows: list[Sequence[object]] = []
    for name, record in zip(run_names(records), records, strict=True):
        rows += [[name]] if len(records) > 1 and record.calls else []
        rows += [_call_row(call, digits) for call in record.calls]
    totals = [total for record in records for total in by_step(record)]
    return table(head, rows, texts=2, foot=["all", "", "", *_totals(totals, digits)])


def _call_row(call: CallRecord, digits: int) -> list[object]:
    total = StepTotals(call.step)
    total.add(call)
    journal = Html(' <span class="tag">from the journal</span>') if call.replayed else ""
    turn = "–" if call.round is None else call.round
    return [str(call.number), Html(f"{step_name(call.step)}{journal}"), turn, *_totals([total], digits)]


def _steps_table(records: Sequence[RunRecord]) -> Html:
    head = ["step", "calls", "answered", "bytes up", "bytes down", "seconds"]
    digits = _decimals(records)
    rows: list[Sequence[object]] = []
    every = [(name, total) for name, r in zip(run_names(records), records, strict=True) for total in by_step(r)]
    last = ""
    for name, total in every[:MOST_STEPS]:
        if len(records) > 1 and name != last:
            rows.append([name])
            last = name
        journal = f' <span class="tag">{count(total.replayed)} from the journal</span>' if total.replayed else ""
        rows.append([Html(f"{step_name(total.step)}{journal}"), total.calls, *_totals([total], digits)])
    totals = [total for _, total in every]
    hidden = len(every) - MOST_STEPS
    rest = note(f"and {plural(hidden, 'more step')}, counted in the last line") if hidden > 0 else ""
    foot = ["all", sum(total.calls for total in totals), *_totals(totals, digits)]
    return Html(f"{table(head, rows, foot=foot)}{rest}")


def _decimals(records: Sequence[RunRecord]) -> int:
    """Return how many decimals the seconds need, one number for the whole column."""
    total = sum(record.seconds for record in records)
    return 4 if total < 10 else 2 if total < 1000 else 0


def _totals(totals: Sequence[StepTotals], digits: int) -> list[object]:
    answered, asked = sum(t.answered for t in totals), sum(t.asked for t in totals)
    of = Html(f"{count(answered)} of {count(asked)}")
    replies = of if answered == asked else Html(f'<span class="bad">{of}</span>')
    seconds = number_with(sum(t.seconds for t in totals), digits)
    return [replies, sum(t.up for t in totals), sum(t.down for t in totals), seconds]


def _short_names(steps: Sequence[str]) -> list[str]:
    """Return the last parts of the steps' names, or the whole names where two would be the same."""
    short = [step.rpartition(".")[2] for step in steps]
    return short if len(set(short)) == len(short) else list(steps)


def step_name(step: str) -> Html:
    """Return a step's dotted name with the last part, which says what it does, in front of the eye.

    Examples
    --------
    >>> print(step_name("protocols.local_gram"))
    <span class="soft">protocols.</span><wbr>local_gram
    """
    module, dot, name = step.rpartition(".")
    return Html(f'<span class="soft">{esc(module + dot)}</span><wbr>{esc(name)}') if dot else esc(name)
