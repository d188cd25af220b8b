"""Maps as still pictures: points in the colours of their groups, and densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import SERIES, WIDTH, path, pixels, specks, svg
from fedspan.report.markup import Html

_MARGIN = 8
#: Up to this many points have large dots.
_FEW = 300
#: The most cells of a density in each direction: nodes of the map's grid are added up.
_MOST_CELLS = 32
#: Cells with fewer rows are not drawn.
_FEWEST = 0.5


def still_map(places: NDArray[Any], groups: NDArray[Any], *, label: str, within: NDArray[Any] | None = None) -> Html:
    """Draw points (n, 2) in the colours of their groups (n,), numbered from 0; one path for each colour.

    The picture shows as much as all points `within` need, so that several can be compared. Default: `places`.
    """
    framed = places if within is None else within
    low, wide = framed.min(axis=0), float(np.ptp(framed, axis=0).max()) or 1.0
    side = WIDTH - 2 * _MARGIN
    # Halves of a unit are finer than the dots. The y axis points up.
    scaled = np.rint((places - low) / wide * side * 2) / 2
    x, y = _MARGIN + scaled[:, 0], _MARGIN + side - scaled[:, 1]
    size = "dots few" if len(places) <= _FEW else "dots"
    colours = groups.astype(int) % SERIES
    body = []
    for colour in np.unique(colours):
        some = colours == colour
        distinct = sorted(set(zip(x[some].tolist(), y[some].tolist(), strict=True)))
        body.append(path(specks(distinct), f"{size} s{colour}"))
    return svg(body, label, height=WIDTH)


def density_map(
    density: NDArray[np.float64], extent: tuple[float, float, float, float], centres: NDArray[np.float64]
) -> Html:
    """Draw a density (g, g), whose nodes reach from left to right and bottom to top, with centres (L, 2) as dots."""
    g = len(density)
    block = -(-g // _MOST_CELLS)
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
        for i, j in zip(*np.nonzero(pooled >= _FEWEST), strict=True)
    ]
    left, right, bottom, upper = extent
    step = np.array([right - left, upper - bottom]) / (g - 1)
    # A node is in the middle of its cell.
    x, y = ((np.asarray(centres) - [left, bottom] + step / 2) / (step * block * cells) * WIDTH).T
    known = np.isfinite(x) & np.isfinite(y)
    dots = specks(zip(x[known], WIDTH - y[known], strict=True))
    ink = 'stroke="currentColor" stroke-width="1.6" stroke-linecap="round" fill="none" opacity="0.7"'
    return svg([*body, Html(f'<path d="{dots}" {ink}/>')], "density of rows on the map, and centres", height=WIDTH)
