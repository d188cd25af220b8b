"""Charts with axes, as inline SVG: pure functions from numbers to markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedspan.report.charts.axes import Scale, drawable, log_ticks, span, tick_texts, ticks, up_to_ticks
from fedspan.report.charts.svg import HEIGHT, LETTER, SERIES, WIDTH, dot, pixels, points, rect, svg
from fedspan.report.markup import Html, esc, join, number

TOP, RIGHT, BOTTOM = 12, 14, 40
MOST_DOTS = 30


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

    Parameters
    ----------
    lines : sequence of Line
    label : str
        What the chart shows, for those who cannot see it.
    x_label : str
    zero : bool, default=False
        Whether the vertical axis starts at zero.
    log : bool, default=False
        Logarithmic vertical axis; all y must be positive.
    log_x : bool, default=False
        Logarithmic horizontal axis; all x must be positive.
    show : callable, optional
        Text of a value on the vertical axis.
    marks : sequence of (x, text)
        Vertical lines, such as the begin of a run. A text that does not fit is left out; it may be empty.
    large : int, optional
        The number of a line whose dots are large, because they are what the chart is about.

    Examples
    --------
    >>> chart = line_chart([Line("loss", [0, 1], [2.0, 1.0])], label="loss", x_label="round")
    >>> chart.count("<polyline"), chart.count("<circle")
    (1, 2)
    """
    low, high = span([y for line in lines for y in line.y], zero=zero)
    if log:
        grid = log_ticks(low, high)
    else:
        whole = all(y == int(y) for line in lines for y in line.y)
        places = (up_to_ticks if zero else ticks)(low, high, 4, whole=whole)
        low, high = min([low, *places]), max([high, *places])
        grid = list(zip(places, map(show, places) if show else tick_texts(places), strict=True))
    left = _left([text for _, text in grid])
    xs = [x for line in lines for x in line.x]
    across = Scale(*span(xs), left, WIDTH - RIGHT, log_x)
    up = Scale(low, high, HEIGHT - BOTTOM, TOP, log)
    if log_x:
        along = log_ticks(across.low, across.high)
    else:
        below = ticks(across.low, across.high, 6, whole=all(x == int(x) for x in xs))
        along = list(zip(below, tick_texts(below), strict=True))
    body = [_horizontal_grid(grid, up, left), _x_texts([(across(x), text) for x, text in along])]
    body += [_mark(across(x), text, until, left) for (x, text), until in zip(marks, _ends(marks, across), strict=True)]
    body += [_line(line, across, up, show or number, 5.5 if i == large else 2.6) for i, line in enumerate(lines)]
    return svg(join(body), label, x_label)


def bar_chart(
    values: Sequence[float],
    names: Sequence[str],
    *,
    label: str,
    x_label: str,
    line: Sequence[float] = (),
    show: Callable[[float], str] = number,
) -> Html:
    """Draw bars from zero, optionally with a line over the bars' middles. What is not finite has no bar.

    Examples
    --------
    >>> bar_chart([0.6, 0.3], ["1", "2"], label="shares", x_label="component").count("<rect")
    2
    """
    low, high = span([v for v in (*values, *line) if drawable(v)], zero=True)
    places = up_to_ticks(low, high, 4)
    low, high = places[0], places[-1]
    grid = list(zip(places, map(show, places), strict=True))
    left = _left([text for _, text in grid])
    up = Scale(low, high, HEIGHT - BOTTOM, TOP)
    slot = (WIDTH - RIGHT - left) / max(1, len(values))
    width = min(0.78 * slot, 36.0)
    middles = [left + (i + 0.5) * slot for i in range(len(values))]
    bars = [
        rect(x - width / 2, min(up(v), up(0)), width, abs(up(v) - up(0)), "s0", f"{name}: {show(v)}")
        for x, v, name in zip(middles, values, names, strict=True)
        if drawable(v)
    ]
    longest = max(map(len, names), default=1)
    every = max(1, -(-int(LETTER * (longest + 1)) // max(1, int(slot))))
    texts = [(x, name) for i, (x, name) in enumerate(zip(middles, names, strict=True)) if i % every == 0]
    over = [(x, v) for x, v in zip(middles, line, strict=False) if drawable(v)]
    dots = join(dot(x, up(v), "s6", show(v)) for x, v in over) if len(over) <= MOST_DOTS else Html("")
    above = [Html(f'<polyline class="line s6" points="{points((x, up(v)) for x, v in over)}"/>'), dots] if over else []
    return svg(join([_horizontal_grid(grid, up, left), *bars, *above, _x_texts(texts)]), label, x_label)


def _left(texts: Sequence[str]) -> float:
    return LETTER * max(map(len, texts), default=1) + 12


def _horizontal_grid(grid: Sequence[tuple[float, str]], up: Scale, left: float) -> Html:
    return join(
        Html(
            f'<path class="grid" d="M{pixels(left)} {pixels(up(value))}H{WIDTH - RIGHT}"/>'
            f'<text class="end" x="{pixels(left - 6)}" y="{pixels(up(value) + 4)}">{esc(text)}</text>'
        )
        for value, text in grid
    )


def _x_texts(texts: Sequence[tuple[float, str]]) -> Html:
    y = HEIGHT - BOTTOM + 16
    return join(Html(f'<text class="mid" x="{pixels(x)}" y="{y}">{esc(text)}</text>') for x, text in texts)


def _line(line: Line, across: Scale, up: Scale, show: Callable[[float], str], radius: float) -> Html:
    kind = f"s{line.colour % SERIES}"
    places = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
    dots = Html("")
    if len(places) <= MOST_DOTS:
        dots = join(
            dot(*place, kind, f"{line.name} at {number(x)}: {show(y)}", radius)
            for place, x, y in zip(places, line.x, line.y, strict=True)
        )
    return Html(f'<polyline class="line {kind}" points="{points(places)}"/>{dots}')


def _ends(marks: Sequence[tuple[float, str]], across: Scale) -> list[float]:
    return [*(across(x) for x, _ in marks[1:]), WIDTH - RIGHT][: len(marks)]


def _mark(x: float, text: str, until: float, left: float) -> Html:
    fits = text and LETTER * len(text) + 8 <= until - x
    words = f'<text class="mark" x="{pixels(x + 4)}" y="{TOP + 8}">{esc(text)}</text>' if fits else ""
    if x <= left:  # the axis itself
        return Html(words)
    return Html(f'<path class="mark" d="M{pixels(x)} {TOP}V{HEIGHT - BOTTOM}"><title>{esc(text)}</title></path>{words}')
