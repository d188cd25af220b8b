"""A histogram of bins of unequal width: the height of a bar is the share of the rows per unit of its width."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.axes import Scale, span, tick_texts, ticks
from fedspan.report.charts.line_charts import BOTTOM, RIGHT, TOP
from fedspan.report.charts.svg import HEIGHT, WIDTH, pixels, rect, svg
from fedspan.report.markup import Html, esc, join, number
from fedspan.report.models.model_attributes import percent

LEFT = 8


def histogram(
    edges: NDArray[np.float64], shares: NDArray[np.float64], *, label: str, x_label: str, mark: float, marked: str
) -> Html:
    """Draw the distribution of which `shares` (m,), rising, lie up to `edges` (m,), with a line at `mark`.

    Bars beyond the mark have another colour.

    Examples
    --------
    >>> edges, shares = np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.0])
    >>> histogram(edges, shares, label="scores", x_label="score", mark=2.0, marked="threshold").count("<rect")
    2
    """
    across = Scale(*span([*edges.tolist(), mark]), LEFT, WIDTH - RIGHT)
    widths, parts = np.diff(edges), np.diff(shares)
    dense = np.divide(parts, widths, out=np.zeros_like(parts), where=widths > 0)
    up = Scale(0.0, float(dense.max(initial=0.0)) or 1.0, HEIGHT - BOTTOM, TOP + 14)
    bars = [
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
    anchor = "end" if x > WIDTH / 2 else ""
    words = f'<text class="mark {anchor}" x="{pixels(x + (-4 if anchor else 4))}" y="{TOP + 6}">{esc(marked)}</text>'
    line = Html(f'<path class="mark" d="M{pixels(x)} {TOP - 4}V{HEIGHT - BOTTOM}"/>{words}')
    base = Html(f'<path class="grid" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    places = ticks(across.low, across.high, 6)
    texts = join(
        Html(f'<text class="mid" x="{pixels(across(t))}" y="{HEIGHT - BOTTOM + 16}">{esc(text)}</text>')
        for t, text in zip(places, tick_texts(places), strict=True)
    )
    return svg(join([*bars, base, line, texts]), label, x_label)
