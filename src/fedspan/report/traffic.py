"""The section on rounds and bytes: every call, or every step where the calls are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from fedspan.federation.record import CallRecord, RunRecord
from fedspan.report.blocks import row_bars
from fedspan.report.charts import Line, line_chart
from fedspan.report.markup import Html, count, esc, note, number, plural, section, size, table
from fedspan.report.svg import charts, figure
from fedspan.report.tally import StepTotals, by_step, run_names
from fedspan.report.thinning import thinned

MOST_CALLS = 50
MOST_STEPS = 50
MOST_BARS = 5
POINTS = 240
UP, DOWN = 0, 6  # colours


def traffic_section(records: Sequence[RunRecord]) -> Html:
    """Return what each call or step asked and cost, with a chart of the bytes that travelled so far."""
    calls = [call for record in records for call in record.calls]
    if not calls:
        return section("rounds", "Rounds and bytes", lead="No call was made.")
    rounds = sum(len({call.round for call in record.calls if call.round is not None}) for record in records)
    within = f" in {plural(rounds, 'round')}" if rounds else ""
    lead = f"{plural(len(calls), 'call')}{within}. Bytes are those of the messages: up from the sites, down to them."
    body = _calls_table(records) if len(calls) <= MOST_CALLS else _steps_table(records)
    return section("rounds", "Rounds and bytes", charts([_so_far(records), _bars(records)]), body, lead=lead)


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


def _bars(records: Sequence[RunRecord]) -> Html:
    """Draw the steps that moved the most bytes."""
    up: Counter[str] = Counter()
    down: Counter[str] = Counter()
    for record in records:
        for total in by_step(record):
            up[total.step] += total.up
            down[total.step] += total.down
    steps = [step for step, _ in (up + down).most_common(MOST_BARS)] or list(up)[:MOST_BARS]
    chart = row_bars(
        [step.rpartition(".")[2] for step in steps],
        [[up[step], down[step]] for step in steps],
        label="bytes by step",
        show=size,
        colours=[UP, DOWN],
    )
    hidden = len(up) - len(steps)
    remark = f"and {plural(hidden, 'step')} with fewer bytes" if hidden else ""
    return figure("Bytes by step", chart, key=[(UP, "up"), (DOWN, "down")], remark=remark)


def _calls_table(records: Sequence[RunRecord]) -> Html:
    head = ["call", "step", "round", "answered", "bytes up", "bytes down", "seconds"]
    rows: list[Sequence[object]] = []
    for name, record in zip(run_names(records), records, strict=True):
        rows += [[name]] if len(records) > 1 and record.calls else []
        rows += [_call_row(call) for call in record.calls]
    totals = [total for record in records for total in by_step(record)]
    return table(head, rows, texts=2, foot=["all", "", "", *_totals(totals)])


def _call_row(call: CallRecord) -> list[object]:
    total = StepTotals(call.step)
    total.add(call)
    journal = Html(' <span class="tag">from the journal</span>') if call.replayed else ""
    turn = "–" if call.round is None else call.round
    return [str(call.number), Html(f"{step_name(call.step)}{journal}"), turn, *_totals([total])]


def _steps_table(records: Sequence[RunRecord]) -> Html:
    head = ["step", "calls", "answered", "bytes up", "bytes down", "seconds"]
    rows: list[Sequence[object]] = []
    every = [(name, total) for name, r in zip(run_names(records), records, strict=True) for total in by_step(r)]
    last = ""
    for name, total in every[:MOST_STEPS]:
        if len(records) > 1 and name != last:
            rows.append([name])
            last = name
        journal = f' <span class="tag">{count(total.replayed)} from the journal</span>' if total.replayed else ""
        rows.append([Html(f"{step_name(total.step)}{journal}"), total.calls, *_totals([total])])
    totals = [total for _, total in every]
    hidden = len(every) - MOST_STEPS
    rest = note(f"and {plural(hidden, 'more step')}, counted in the last line") if hidden > 0 else ""
    foot = ["all", sum(total.calls for total in totals), *_totals(totals)]
    return Html(f"{table(head, rows, foot=foot)}{rest}")


def _totals(totals: Sequence[StepTotals]) -> list[object]:
    answered, asked = sum(t.answered for t in totals), sum(t.asked for t in totals)
    of = Html(f"{count(answered)} of {count(asked)}")
    replies = of if answered == asked else Html(f'<span class="bad">{of}</span>')
    return [replies, sum(t.up for t in totals), sum(t.down for t in totals), number(sum(t.seconds for t in totals), 3)]


def step_name(step: str) -> Html:
    """Return a step's dotted name with the last part, which says what it does, in front of the eye.

    Examples
    --------
    >>> print(step_name("protocols.local_gram"))
    <span class="soft">protocols.</span><wbr>local_gram
    """
    module, dot, name = step.rpartition(".")
    return Html(f'<span class="soft">{esc(module + dot)}</span><wbr>{esc(name)}') if dot else esc(name)
