"""Charts with axes: lines, bars, and histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.axes import Scale, Ticks, axis, drawable
from fedspan.report.charts.svg import HEIGHT, LETTER, SERIES, WIDTH, line, path, pixels, rect, svg, text
from fedspan.report.markup import Html, number, percent

TOP, RIGHT, BOTTOM = 12, 14, 40
FLOOR = HEIGHT - BOTTOM
MOST_DOTS = 30
#: Of a line, where it has more.
POINTS = 240


@dataclass(frozen=True)
class Line:
    """One line of a chart: x and y of shape (n,), all drawable."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    zero: bool = False,
    log: bool = False,
    log_x: bool = False,
    show: Callable[[float], str] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    large: int | None = None,
) -> Html:
    """Draw lines over numbers: rounds, calls, seconds.

    The vertical axis includes zero with `zero`; an axis is logarithmic with `log` and `log_x`, which need positive
    values. `show` gives the text of a value, and `marks` are vertical lines at x with a text, where it fits. `large` is
    the number of the line with large dots.
    """
    up, grid = axis([y for line in lines for y in line.y], FLOOR, TOP, most=4, zero=zero, log=log, show=show)
    left = _left(grid)
    across, below = axis([x for line in lines for x in line.x], left, WIDTH - RIGHT, most=6, log=log_x)
    body = [*_grid(grid, up, left), *_x_texts([(across(x), name) for x, name in below])]
    ends = [*(across(x) for x, _ in marks[1:]), WIDTH - RIGHT]
    for (x, name), end in zip(marks, ends, strict=False):
        place = across(x)
        body += [path(f"M{pixels(place)} {TOP}V{FLOOR}", "mark", name)] if place > left else []
        fits = name and LETTER * len(name) + 8 <= end - place
        body += [text(place + 4, TOP + 8, name, "mark")] if fits else []
    for i, one in enumerate(lines):
        points = list(zip(one.x, one.y, strict=True))
        titles = [f"{one.name} at {number(x)}: {(show or number)(y)}" for x, y in points]
        places = [(across(x), up(y)) for x, y in points]
        few = titles if len(places) <= MOST_DOTS else []
        body.append(line(places, f"s{one.colour % SERIES}", few, 5.5 if i == large else 2.6))
    return svg(body, label, x_label=x_label)


def bar_chart(
    values: Sequence[float],
    names: Sequence[str],
    *,
    label: str,
    x_label: str,
    over: Sequence[float] = (),
    show: Callable[[float], str] = number,
) -> Html:
    """Draw bars from zero, optionally with a line `over` the bars' middles. What is not finite has no bar."""
    up, grid = axis([v for v in (*values, *over) if drawable(v)], FLOOR, TOP, most=4, zero=True, show=show)
    left = _left(grid)
    slot = (WIDTH - RIGHT - left) / max(1, len(values))
    width = min(0.78 * slot, 36.0)
    middles = [left + (i + 0.5) * slot for i in range(len(values))]
    body = [
        rect(x - width / 2, min(up(v), up(0)), width, abs(up(v) - up(0)), "s0", f"{name}: {show(v)}")
        for x, v, name in zip(middles, values, names, strict=True)
        if drawable(v)
    ]
    known = [(x, v) for x, v in zip(middles, over, strict=False) if drawable(v)]
    if known:
        titles = [show(v) for _, v in known] if len(known) <= MOST_DOTS else []
        body.append(line([(x, up(v)) for x, v in known], "s6", titles))
    every = max(1, -(-int(LETTER * (max(map(len, names), default=1) + 1)) // max(1, int(slot))))
    shown = list(zip(middles, names, strict=True))[::every]
    return svg([*_grid(grid, up, left), *body, *_x_texts(shown)], label, x_label=x_label)


def histogram(
    edges: NDArray[np.float64], shares: NDArray[np.float64], *, label: str, x_label: str, mark: float, marked: str
) -> Html:
    """Draw the distribution of which `shares` (m,), rising, lie up to `edges` (m,), with a line at `mark`.

    The height of a bar is the share per unit of its width. Bars beyond the mark have another colour.
    """
    left = 8
    across, below = axis([*edges.tolist(), mark], left, WIDTH - RIGHT, most=6)
    widths, parts = np.diff(edges), np.diff(shares)
    dense = np.divide(parts, widths, out=np.zeros_like(parts), where=widths > 0)
    up = Scale(0.0, float(dense.max(initial=0.0)) or 1.0, FLOOR, TOP + 14)
    body = [
        rect(
            across(a),
            up(height),
            max(across(b) - across(a) - 0.3, 0.3),
            up(0.0) - up(height),
            "s6" if a >= mark else "s0",
            f"{number(a)} to {number(b)}: {percent(part)}",
        )
        for a, b, height, part in zip(edges, edges[1:], dense, parts, strict=False)
        if part > 0
    ]
    x = across(mark)
    beside, anchor = (-4, "mark end") if x > WIDTH / 2 else (4, "mark")
    body += [path(f"M{left} {FLOOR}H{WIDTH - RIGHT}", "grid"), path(f"M{pixels(x)} {TOP - 4}V{FLOOR}", "mark")]
    body += [text(x + beside, TOP + 6, marked, anchor), *_x_texts([(across(t), name) for t, name in below])]
    return svg(body, label, x_label=x_label)


def thinned(x: Sequence[float], y: Sequence[float], most: int = POINTS) -> tuple[list[float], list[float]]:
    """Return at most `most` (at least 4) points of a line: the ends, and the lowest and highest of each stretch."""
    n = len(y)
    if n <= most:
        return list(x), list(y)
    stretches = (most - 2) // 2
    keep = {0, n - 1}
    for i in range(stretches):
        inside = range(1 + i * (n - 2) // stretches, 1 + (i + 1) * (n - 2) // stretches)
        keep |= {min(inside, key=y.__getitem__), max(inside, key=y.__getitem__)}
    order = sorted(keep)
    return [x[i] for i in order], [y[i] for i in order]


def _left(grid: Ticks) -> float:
    """Return the room for the texts on the left."""
    return LETTER * max((len(name) for _, name in grid), default=1) + 12


def _grid(grid: Ticks, up: Scale, left: float) -> list[Html]:
    lines = [path(f"M{pixels(left)} {pixels(up(value))}H{WIDTH - RIGHT}", "grid") for value, _ in grid]
    return lines + [text(left - 6, up(value) + 4, name, "end") for value, name in grid]


def _x_texts(texts: Sequence[tuple[float, str]]) -> list[Html]:
    return [text(x, FLOOR + 16, name, "mid") for x, name in texts]
