"""The section on rounds and bytes: every call, or every step where the calls are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from fedspan.federation.record import RunRecord
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import (
    Html,
    PageSection,
    count,
    duration,
    esc,
    join,
    more,
    number_with,
    plural,
    section,
    size,
    table,
)
from fedspan.report.sections.call_totals import Totals, by_step, round_index, run_names

MOST_LINES = 50
MOST_BARS = 5
UP, DOWN, TIME = 0, 6, 4  # colours


def traffic_section(records: Sequence[RunRecord]) -> PageSection:
    """Return the replies and costs of each call or step, with a chart of the bytes so far."""
    calls = sum(len(record.calls) for record in records)
    if not calls:
        return section("rounds", "Rounds and bytes", lead="No call was made.")
    rounds = sum(round_index(record).total for record in records)
    within = f" in {plural(rounds, 'round')}" if rounds else ""
    lead = f"{plural(calls, 'call')}{within}. Bytes are those of the messages: up from the sites, down to them."
    drawn = charts([_bytes_so_far(records), *_bars(records)])
    return section("rounds", "Rounds and bytes", drawn, _table(records, by_call=calls <= MOST_LINES), lead=lead)


def _bytes_so_far(records: Sequence[RunRecord]) -> Html:
    """Draw the bytes of all calls so far, over the calls of all runs in order."""
    totals = [Totals.of(call) for record in records for call in record.calls]
    lines = []
    for name, colour, sizes in (("up", UP, [t.up for t in totals]), ("down", DOWN, [t.down for t in totals])):
        lines.append(Line(name, *thinned(range(len(totals) + 1), [0, *accumulate(sizes)]), colour=colour))
    starts = [0, *accumulate(len(record.calls) for record in records)][:-1]
    marks = list(zip(map(float, starts), run_names(records), strict=True)) if 1 < len(records) <= 6 else []
    chart = line_chart(lines, label="bytes up and down so far", x_label="calls", zero=True, show=size, marks=marks)
    return figure("Bytes so far", chart, key=[(UP, "up"), (DOWN, "down")])


def _bars(records: Sequence[RunRecord]) -> list[Html]:
    """Draw the steps that moved the most bytes, and those that took the most time."""
    steps = by_step(records)

    def drawn(
        title: str, values: dict[str, list[float]], show: Callable[[float], str], key: list[tuple[int, str]]
    ) -> Html:
        most = sorted(values, key=lambda step: -sum(values[step]))[:MOST_BARS]
        colours = [colour for colour, _ in key]
        chart = row_bars(most, [values[step] for step in most], label=title, show=show, colours=colours)
        hidden = len(values) - len(most)
        return figure(title, chart, remark=f"and {plural(hidden, 'step')} with less" if hidden else "", key=key)

    sizes: dict[str, list[float]] = {step: [total.up, total.down] for step, total in steps.items()}
    times = {step: [total.seconds] for step, total in steps.items()}
    return [
        drawn("Bytes by step", sizes, size, [(UP, "up"), (DOWN, "down")]),
        drawn("Time by step", times, duration, [(TIME, "from the request to the last reply")]),
    ]


def _table(records: Sequence[RunRecord], *, by_call: bool) -> Html:
    """Return a line for each call, or for each step of each run."""
    lines: list[tuple[str, list[object], Totals]] = []
    for name, record in zip(run_names(records), records, strict=True):
        if by_call:
            for call in record.calls:
                step = _tagged(call.step, "from the journal" if call.replayed else "")
                turn = "–" if call.round is None else call.round
                lines.append((name, [str(call.number), step, turn], Totals.of(call)))
        else:
            for id, total in by_step([record]).items():
                replayed = f"{count(total.replayed)} from the journal" if total.replayed else ""
                lines.append((name, [_tagged(id, replayed), total.calls], total))
    whole = Totals.all(total for _, _, total in lines)
    decimals = 4 if whole.seconds < 10 else 2 if whole.seconds < 1000 else 0
    rows: list[Sequence[object]] = []
    last = ""
    for name, cells, total in lines[:MOST_LINES]:
        rows += [[name]] if len(records) > 1 and name != last else []
        rows.append([*cells, *_figures(total, decimals)])
        last = name
    head = [*(["call", "step", "round"] if by_call else ["step", "calls"]), "answered", "bytes up", "bytes down"]
    foot = ["all", *(["", ""] if by_call else [whole.calls]), *_figures(whole, decimals)]
    rest = more(len(lines) - MOST_LINES, "step", ", counted in the last line")
    return join([table([*head, "seconds"], rows, texts=2 if by_call else 1, foot=foot), *rest])


def _tagged(step: str, tag: str) -> Html:
    return Html(f'{esc(step)} <span class="tag">{tag}</span>' if tag else esc(step))


def _figures(total: Totals, decimals: int) -> list[object]:
    replies = Html(f"{count(total.answered)} of {count(total.requested)}")
    if total.answered < total.requested:
        replies = Html(f'<span class="bad">{replies}</span>')
    return [replies, total.up, total.down, number_with(total.seconds, decimals)]
