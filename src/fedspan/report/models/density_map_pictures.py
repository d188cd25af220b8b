"""The picture of a private map: how dense it is, and where its centres are. No row is on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import WIDTH, pixels, svg
from fedspan.report.markup import Html, count, join, number

#: Cells of the picture in each direction, at most: nodes of the map's grid are put together.
MOST_CELLS = 32
#: Cells with fewer rows are not drawn.
FEWEST = 0.5


def density_picture(
    density: NDArray[np.float64], extent: tuple[float, float, float, float], centres: NDArray[np.float64]
) -> Html:
    """Draw a density (g, g), whose nodes reach from left to right and bottom to top, with centres (L, 2) as dots.

    Examples
    --------
    >>> density_picture(np.eye(2), (0.0, 1.0, 0.0, 1.0), np.array([[0.5, 0.5]])).count("<rect")
    2
    """
    g = len(density)
    block = -(-g // MOST_CELLS)
    cells = -(-g // block)
    padded = np.zeros((cells * block, cells * block))
    padded[:g, :g] = density
    pooled = padded.reshape(cells, block, cells, block).sum(axis=(1, 3))
    side = WIDTH / cells
    top = float(pooled.max(initial=0.0)) or 1.0
    body = [
        Html(
            f'<rect class="plus" x="{pixels(i * side)}" y="{pixels(WIDTH - (j + 1) * side)}" width="{pixels(side)}" '
            f'height="{pixels(side)}" fill-opacity="{0.08 + 0.72 * np.sqrt(pooled[i, j] / top):.2f}"/>'
        )
        for i, j in zip(*np.nonzero(pooled >= FEWEST), strict=True)
    ]
    left, right, bottom, upper = extent
    # A node is in the middle of its cell.
    wide, high = (right - left) / (g - 1), (upper - bottom) / (g - 1)
    x = (np.asarray(centres)[:, 0] - left + wide / 2) / (wide * block * cells) * WIDTH
    y = WIDTH - (np.asarray(centres)[:, 1] - bottom + high / 2) / (high * block * cells) * WIDTH
    shown = np.isfinite(x) & np.isfinite(y)
    dots = "".join(f"M{pixels(a)} {pixels(b)}h0" for a, b in zip(x[shown], y[shown], strict=True))
    path = (
        f'<path d="{dots}" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" fill="none" opacity="0.7"/>'
    )
    return svg(join([*body, Html(path)]), "density of rows on the map, and centres", height=WIDTH)


def density_of(model: Any) -> tuple[Html, str] | None:
    """Return the picture and its remark for a model with ``density_``, its extent and ``center_positions_``."""
    density, extent = getattr(model, "density_", None), getattr(model, "density_extent_", None)
    centres = getattr(model, "center_positions_", None)
    if density is None or extent is None or centres is None or np.ndim(density) != 2 or len(density) < 2:
        return None
    remark = (
        f"{count(round(float(np.sum(density))))} rows, which stay at their sites; dots: {count(len(centres))} centres. "
        f"The picture is {number(extent[1] - extent[0], 3)} wide."
    )
    return density_picture(np.asarray(density, dtype=np.float64), extent, np.asarray(centres)), remark
