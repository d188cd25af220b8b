"""The page of a drift monitor: windows over time, which columns and sites moved, and since when."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedspan.anomaly.drift_monitor import DriftMonitor, Window
from fedspan.report.charts.bars_and_cells import heat_map
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, count, few, header, join, note, number, section, table
from fedspan.report.page import write_page

_MOST_WINDOWS, _MOST_COLUMNS = 40, 12
#: The largest evidence that is drawn, minus the logarithm of a p-value.
_MOST_EVIDENCE = 300.0


def write_drift_page(path: str | os.PathLike[str], monitor: DriftMonitor, *, title: str = "Drift") -> Path:
    """Write what a monitor has found over time as one HTML file that opens offline."""
    path, windows = Path(path), monitor.windows
    drifted = [window for window in windows if window.drifted]
    result = "No window has been watched yet."
    if windows:
        last = drifted[-1] if drifted else None
        result = f"No drift in {count(len(windows))} windows."
        if last is not None:
            result = (
                f"{count(len(drifted))} of {count(len(windows))} windows show drift; the last one since {last.since}."
            )
    tiles = [
        ("windows", count(len(windows))),
        ("with drift", count(len(drifted))),
        ("rows", count(sum(window.rows for window in windows))),
        ("false alarms", f"at most {monitor.alpha:g} of windows"),
    ]
    parts = [header(title, result, tiles)]
    if windows:
        parts += [_over_time(windows, monitor.alpha), _columns(windows), _windows(windows)]
    write_page(path, title, join(parts, "\n"))
    return path


def _over_time(windows: list[Window], alpha: float) -> Html:
    x = list(range(len(windows)))
    evidence = [min(_MOST_EVIDENCE, -float(np.log10(max(window.p_value, 1e-300)))) for window in windows]
    limit = [-float(np.log10(alpha))] * len(windows)
    index = [window.score_index for window in windows]
    shown = [
        figure(
            "Evidence of drift, minus the logarithm of the p-value, and its limit",
            line_chart(
                [Line("evidence", x, evidence), Line("limit", x, limit, 1)],
                label="evidence by window",
                x_label="window",
                zero=True,
            ),
        ),
        figure(
            "Stability index of the scores",
            line_chart([Line("index", x, index)], label="index by window", x_label="window", zero=True),
        ),
    ]
    return section("time", "Over time", charts(shown))


def _columns(windows: list[Window]) -> Html:
    """Draw which columns moved in the last windows, by the difference of the distributions."""
    recent = windows[-_MOST_WINDOWS:]
    largest: dict[str, float] = {}
    for window in recent:
        for one in window.moved:
            if one.of == "column" and one.name in window.columns:
                largest[one.name] = max(largest.get(one.name, 0.0), one.difference)
    names = sorted(largest, key=lambda name: -largest[name])[:_MOST_COLUMNS]
    if not names:
        return section("columns", "Columns", note("No column moved in the last windows."))
    found = np.full((len(names), len(recent)), np.nan)
    for j, window in enumerate(recent):
        for one in window.moved:
            if one.of == "column" and one.name in names and one.name in window.columns:
                found[names.index(one.name), j] = one.difference
    labels = [str(len(windows) - len(recent) + j) for j in range(len(recent))]
    drawn = heat_map(found, names, labels, label="columns that moved", deepest=1.0)
    return section("columns", "Columns", charts([figure("Largest difference of the distributions", drawn)]))


def _windows(windows: list[Window]) -> Html:
    rows = []
    for window in reversed([one for one in windows if one.drifted][-_MOST_WINDOWS:]):
        what = few([*window.columns, *(one.of for one in window.moved if one.of != "column")]) or "-"
        sites = few(window.sites) or "-"
        rows.append([window.name, what, sites, window.since, window.rows, number(window.p_value)])
    if not rows:
        return section("windows", "Windows with drift", note("There are none."))
    columns = ["window", "what moved", "sites", "since", "rows", "p-value"]
    return section("windows", "Windows with drift", table(columns, rows, texts=4))
