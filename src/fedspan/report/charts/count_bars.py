"""Histograms of counts, some of which are suppressed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.axes import Scale, axis, drawable
from fedspan.report.charts.line_charts import FLOOR, RIGHT, TOP
from fedspan.report.charts.svg import LETTER, WIDTH, path, pixels, rect, svg, text
from fedspan.report.markup import Html, count, number

#: The width of the bars of what lies beyond the edges, in bins.
_BEYOND = 1.0


def count_bars(
    edges: NDArray[np.float64], counts: NDArray[np.float64], beyond: tuple[float, float], *, label: str, x_label: str
) -> Html:
    """Draw counts (B,) between edges (B + 1,), and those below and above in grey; NaN has a dash on the axis."""
    low, high = float(edges[0]), float(edges[-1])
    width = (high - low) / max(1, len(counts)) or 1.0
    ends = [low - _BEYOND * width, *edges.tolist(), high + _BEYOND * width]
    values = [beyond[0], *counts.tolist(), beyond[1]]
    up, grid = axis([v for v in values if drawable(v)] or [1.0], FLOOR, TOP, most=4, zero=True, show=_whole)
    left = LETTER * max((len(name) for _, name in grid), default=1) + 12
    across = Scale(ends[0], ends[-1], left, WIDTH - RIGHT)
    _, ticks = axis(edges.tolist(), across(low), across(high), most=5)
    body = [path(f"M{pixels(left)} {pixels(up(value))}H{WIDTH - RIGHT}", "grid") for value, _ in grid]
    body += [text(left - 6, up(value) + 4, name, "end") for value, name in grid]
    for k, value in enumerate(values):
        a, b = across(ends[k]), across(ends[k + 1])
        outer = k in (0, len(values) - 1)
        words = "below" if k == 0 else "above" if outer else f"{number(ends[k])} to {number(ends[k + 1])}"
        if not drawable(value):
            body.append(rect(a + 1, FLOOR - 2, max(b - a - 2, 0.5), 2, "s6", f"{words}: suppressed"))
        elif value > 0:
            kind = "s3" if outer else "s0"
            body.append(
                rect(a, up(value), max(b - a - 0.6, 0.4), FLOOR - up(value), kind, f"{words}: {count(round(value))}")
            )
    body += [text(across(at), FLOOR + 16, name, "mid") for at, name in ticks if low <= at <= high]
    return svg(body, label, x_label=x_label)


def _whole(value: float) -> str:
    return count(round(value)) if value == round(value) else ""
