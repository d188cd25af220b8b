"""The elements of charts.

A chart is 360 units wide, about as wide as a phone, so that its text is readable there. Three fit side by side on a
desktop. Colours come from the style sheet: a shape has the class of its series (``s0``, ``s1``, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedspan.report.markup import LONGEST_TEXT, Html, esc, join

WIDTH, HEIGHT = 360, 220
LETTER = 6.3  # the approximate width of a letter
SERIES = 10  # colours in the style sheet


def figure(
    title: object, chart: Html, *, over: str = "", remark: str = "", key: Sequence[tuple[int, str]] = ()
) -> Html:
    """Return a chart with its title, the name of its model `over` it, the meaning of the colours, and a remark."""
    names = join(Html(f'<li class="s{colour}">{esc(name, 60)}</li>') for colour, name in key)
    legend = f'<ul class="key">{names}</ul>' if key else ""
    model = f"<small>{esc(over)}</small>" if over else ""
    below = f'<p class="note">{esc(remark)}</p>' if remark else ""
    return Html(f"<figure><figcaption>{model}{esc(title)}</figcaption>{legend}{chart}{below}</figure>")


def charts(figures: Sequence[Html], *, wide: bool = False) -> Html:
    """Return figures side by side, as many as fit; of `wide` ones two fill a row."""
    return Html(f'<div class="charts{" wide" if wide else ""}">{join(figures)}</div>')


def svg(body: Iterable[Html], label: str, *, x_label: str = "", height: float = HEIGHT) -> Html:
    """Return a drawing; `label` describes it for readers who can't see it."""
    below = text(WIDTH / 2, HEIGHT - 6, x_label, "mid axis") if x_label else ""
    return Html(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {pixels(height)}" role="img" aria-label="{esc(label)}">'
        f"{join(body)}{below}</svg>"
    )


def text(x: float, y: float, content: object, kind: str = "", *, most: int = LONGEST_TEXT) -> Html:
    """Return text at a place, cut after `most` letters, with all of it as a title where it was cut."""
    whole = str(content)
    title = f"<title>{esc(whole)}</title>" if len(whole) > most else ""
    return Html(f'<text class="{kind}" x="{pixels(x)}" y="{pixels(y)}">{esc(whole, most)}{title}</text>')


def path(d: str, kind: str, title: str = "") -> Html:
    """Return a path of class `kind`."""
    return Html(f'<path class="{kind}" d="{d}">{f"<title>{esc(title)}</title>" if title else ""}</path>')


def rect(x: float, y: float, width: float, height: float, kind: str, title: str, shade: float | None = None) -> Html:
    """Return a rectangle of class `kind` with a title that is shown on pointing at it."""
    opacity = "" if shade is None else f' fill-opacity="{shade:.3f}"'
    extent = f'width="{pixels(max(0.0, width))}" height="{pixels(height)}"'
    return Html(
        f'<rect class="{kind}" x="{pixels(x)}" y="{pixels(y)}" {extent}{opacity}><title>{esc(title)}</title></rect>'
    )


def line(places: Sequence[tuple[float, float]], kind: str, titles: Sequence[str] = (), radius: float = 2.6) -> Html:
    """Return a line through places, with a dot and its title at each where there are titles."""
    corners = " ".join(f"{pixels(x)},{pixels(y)}" for x, y in places)
    dots = [
        f'<circle class="{kind}" cx="{pixels(x)}" cy="{pixels(y)}" r="{radius}"><title>{esc(title)}</title></circle>'
        for (x, y), title in zip(places, titles, strict=False)
    ]
    return Html(f'<polyline class="line {kind}" points="{corners}"/>{"".join(dots)}')


def specks(places: Iterable[tuple[float, float]]) -> str:
    """Return the path of many small dots: lines without length, whose round ends are seen."""
    return "".join(f"M{pixels(x)} {pixels(y)}h0" for x, y in places)


def pixels(value: float) -> str:
    """Return a place in hundredths of a unit, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
