"""The pieces that charts are made of.

A chart is 360 units wide, about as wide as a phone, so that its text is readable there and three stand side by side
on a desk. Colours come from the style sheet: a shape has the class of its series (``s0``, ``s1``, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedspan.report.markup import Html, esc, join

WIDTH, HEIGHT = 360, 220
LETTER = 6.3  # the width of a letter, roughly: leaves room for the texts on the left
SERIES = 10  # colours in the style sheet


def figure(
    title: object, chart: Html, *, over: str = "", remark: str = "", key: Sequence[tuple[int, str]] = ()
) -> Html:
    """Return a chart with its title and what it belongs to over it, what the colours mean, and a remark."""
    names = join(Html(f'<li class="s{colour}">{esc(name, 60)}</li>') for colour, name in key)
    legend = f'<ul class="key">{names}</ul>' if key else ""
    whose = f"<small>{esc(over)}</small>" if over else ""
    said = f'<p class="note">{esc(remark)}</p>' if remark else ""
    return Html(f"<figure><figcaption>{whose}{esc(title)}</figcaption>{legend}{chart}{said}</figure>")


def charts(figures: Sequence[Html]) -> Html:
    """Return figures side by side, as many as fit."""
    return Html(f'<div class="charts">{join(figures)}</div>')


def svg(body: Html, label: str, x_label: str = "", height: int = HEIGHT) -> Html:
    """Return a drawing that says in words what it is."""
    below = f'<text class="mid axis" x="{WIDTH / 2:g}" y="{HEIGHT - 6}">{esc(x_label)}</text>' if x_label else ""
    return Html(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{esc(label)}">{body}{below}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, kind: str, title: str, shade: float | None = None) -> Html:
    """Return a rectangle of class `kind` with a title to be seen on pointing at it."""
    opacity = "" if shade is None else f' fill-opacity="{shade:.3f}"'
    extent = f'width="{pixels(max(0.0, width))}" height="{pixels(height)}"'
    return Html(
        f'<rect class="{kind}" x="{pixels(x)}" y="{pixels(y)}" {extent}{opacity}><title>{esc(title)}</title></rect>'
    )


def dot(x: float, y: float, kind: str, title: str, radius: float = 2.6) -> Html:
    """Return a small disc of class `kind` with a title."""
    return Html(
        f'<circle class="{kind}" cx="{pixels(x)}" cy="{pixels(y)}" r="{radius}"><title>{esc(title)}</title></circle>'
    )


def points(places: Iterable[tuple[float, float]]) -> str:
    """Return the corners of a line."""
    return " ".join(f"{pixels(x)},{pixels(y)}" for x, y in places)


def pixels(value: float) -> str:
    """Return a place in hundredths of a unit, as short as can be.

    Examples
    --------
    >>> pixels(1.0), pixels(2.345678)
    ('1', '2.35')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")
