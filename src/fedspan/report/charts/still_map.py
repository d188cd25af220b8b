"""A map as a still picture: many points, as small as can be, to be seen beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import SERIES, WIDTH
from fedspan.report.markup import Html, esc, join

_MARGIN = 8
#: Up to so many points have large dots.
_FEW = 300


def still_map(places: NDArray[Any], groups: NDArray[Any], *, label: str) -> Html:
    """Draw points (n, 2) in the colours of their groups (n,), numbered from 0; one path for each colour.

    Examples
    --------
    >>> drawn = still_map(np.eye(2), np.array([0, 1]), label="two points")
    >>> drawn.count("<path"), "M8 8h0" in drawn
    (2, True)
    """
    low, wide = places.min(axis=0), float(np.ptp(places, axis=0).max()) or 1.0
    side = WIDTH - 2 * _MARGIN
    # Halves of a unit are finer than the dots. The y axis points up.
    scaled = np.rint((places - low) / wide * side * 2) / 2
    x, y = _MARGIN + scaled[:, 0], _MARGIN + side - scaled[:, 1]
    size = "dots few" if len(places) <= _FEW else "dots"
    colours = groups.astype(int) % SERIES
    paths = [
        Html(f'<path class="{size} s{colour}" d="{_dots(x[colours == colour], y[colours == colour])}"/>')
        for colour in np.unique(colours)
    ]
    return Html(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {WIDTH}" role="img" aria-label="{esc(label)}">{join(paths)}</svg>'
    )


def _dots(x: NDArray[Any], y: NDArray[Any]) -> str:
    """Return a path of lines without length: with round ends each is a dot."""
    return "".join(f"M{a:g} {b:g}h0" for a, b in sorted(set(zip(x.tolist(), y.tolist(), strict=True))))
