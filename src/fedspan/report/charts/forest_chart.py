"""A forest plot: estimates with their intervals, one a line, about a vertical line."""

from __future__ import annotations

from collections.abc import Sequence

from fedspan.report.charts.axes import axis, drawable
from fedspan.report.charts.svg import LETTER, WIDTH, path, pixels, rect, svg, text
from fedspan.report.markup import Html, number

_LINE, _HEAD, _FOOT = 22, 8, 24
_LONGEST_NAME = 17


def forest_chart(names: Sequence[str], rows: Sequence[tuple[float, float, float]], *, label: str, at: float) -> Html:
    """Draw estimates with the lower and upper ends of their intervals; `at` is the value of no effect."""
    left = max([LETTER * min(len(name), _LONGEST_NAME) for name in names], default=0.0) + 12
    ends = [value for row in rows for value in row if drawable(value)]
    across, ticks = axis([*ends, at], left, WIDTH - 12, most=4)
    floor = _HEAD + _LINE * len(rows)
    body = [path(f"M{pixels(across(x))} {_HEAD}V{floor}", "grid") for x, _ in ticks]
    body += [text(across(x), floor + 16, name, "mid") for x, name in ticks]
    body.append(path(f"M{pixels(across(at))} {_HEAD}V{floor}", "mark"))
    for i, (name, (estimate, low, high)) in enumerate(zip(names, rows, strict=True)):
        y = _HEAD + _LINE * (i + 0.5)
        body.append(text(left - 8, y + 4, name, "end", most=_LONGEST_NAME))
        if not all(map(drawable, (estimate, low, high))):
            continue
        title = f"{name}: {number(estimate)} ({number(low)} to {number(high)})"
        a, b = across(low), across(high)
        body.append(rect(a, y - 1, max(b - a, 1.0), 2, "s0", title))
        body.append(rect(across(estimate) - 3.5, y - 3.5, 7, 7, "s0", title))
    return svg(body, label, height=floor + _FOOT)
