"""Charts without axes: lying bars under their names, and shaded cells. Pure functions from numbers to SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.axes import Scale, drawable, number_with
from fedspan.report.charts.svg import LETTER, WIDTH, pixels, rect, svg
from fedspan.report.markup import Html, esc, join, number


def row_bars(
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    label: str,
    show: Callable[[float], str],
    colours: Sequence[int],
) -> Html:
    """Draw one lying bar a row, its parts side by side, with the name above it and the total at the right.

    Parameters
    ----------
    names : sequence of str, length n
    values : sequences of float, shape (n, parts)
        Not negative.
    colours : sequence of int, length parts

    Examples
    --------
    >>> row_bars(["a"], [[1, 3]], label="bytes", show=str, colours=[0, 1]).count("<rect")
    2
    """
    totals = [sum(row) for row in values]
    across = Scale(0, max([*totals, 0]) or 1, 0, WIDTH)
    body = []
    for i, (name, row, total) in enumerate(zip(names, values, totals, strict=True)):
        top = 36 * i
        room = int((WIDTH / LETTER) - len(show(total)) - 2)
        body += [
            Html(f'<text class="name" x="0" y="{top + 14}">{esc(name, room)}<title>{esc(name)}</title></text>'),
            Html(f'<text class="end" x="{WIDTH}" y="{top + 14}">{esc(show(total))}</text>'),
        ]
        x = 0.0
        for value, colour in zip(row, colours, strict=True):
            body.append(rect(x, top + 20, across(value), 8, f"s{colour}", f"{name}: {show(value)}"))
            x += across(value)
    return svg(join(body), label, height=36 * len(names))


def heat_map(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    told: NDArray[np.float64] | None = None,
) -> Html:
    """Draw signed values as shaded cells with their numbers; the largest size of all has the deepest shade.

    Parameters
    ----------
    values : array of shape (r, c)
        What is not finite stays an empty cell.
    rows, columns : sequences of str, lengths r and c
    told : array of shape (r, c), optional
        Numbers to write in place of the values that give the shades.

    Examples
    --------
    >>> heat_map(np.array([[1.0, -0.5]]), ["age"], ["1", "2"], label="loadings").count("<rect")
    2
    """
    shown = [esc(name, 17) for name in rows]
    left = max([LETTER * min(len(name), 17) for name in rows], default=0.0) + 12
    cell, line, head = (WIDTH - left) / max(1, len(columns)), 21, 20
    told = values if told is None else told
    widest = float(np.max(np.abs(told), where=np.isfinite(told), initial=0.0))
    largest = float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0)) or 1.0
    body = [
        Html(f'<text class="mid" x="{pixels(left + (j + 0.5) * cell)}" y="12">{esc(n)}</text>')
        for j, n in enumerate(columns)
    ]
    for i, (full, name) in enumerate(zip(rows, shown, strict=True)):
        y = head + i * line
        body.append(
            Html(f'<text class="end" x="{pixels(left - 8)}" y="{y + 14}">{name}<title>{esc(full)}</title></text>')
        )
        for j, value in enumerate(values[i]):
            if not drawable(value):
                continue
            x, shade = left + j * cell, 0.75 * abs(value) / largest
            text = number_with(told[i, j], 2) if cell >= 34 and 0.01 <= widest < 100 else ""
            body += [
                rect(
                    x + 1,
                    y,
                    cell - 2,
                    line - 2,
                    "plus" if value > 0 else "minus",
                    f"{full}, {columns[j]}: {number(told[i, j])}",
                    shade,
                ),
                Html(f'<text class="mid cell" x="{pixels(x + cell / 2)}" y="{y + 14}">{text}</text>' if text else ""),
            ]
    return svg(join(body), label, height=head + line * len(rows) + 2)
