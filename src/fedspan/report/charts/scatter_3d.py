"""Points in three dimensions, as a still picture: a box seen from above its corner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import HEIGHT, SERIES, WIDTH, pixels, svg
from fedspan.report.markup import Html, esc, join

#: From the unit cube to the picture: the columns are where the three axes point, to the right and up.
VIEW = np.array([[0.82, -0.57, 0.0], [-0.22, -0.33, 0.84]])
MARGIN = 26


def cloud(groups: Sequence[Sequence[Sequence[float]]], axes: Sequence[str], *, label: str) -> Html:
    """Draw groups of points, each in its colour, within the box of them all; far points first.

    Parameters
    ----------
    groups : sequence of (n, 3)
    axes : sequence of three names
    label : str
        What the picture shows, for those who cannot see it.

    Examples
    --------
    >>> cloud([[[0, 0, 0], [1, 1, 1]], [[1, 0, 0]]], ("x", "y", "z"), label="three points").count("<circle")
    3
    """
    arrays = [np.asarray(group, dtype=np.float64).reshape(-1, 3) for group in groups]
    everything = np.concatenate(arrays)
    low, high = everything.min(axis=0), everything.max(axis=0)
    places = _placed((everything - low) / np.where(high > low, high - low, 1.0))
    kinds = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    # Groups lie on top of each other evenly when the points of all are drawn in one order, by depth.
    order = np.argsort(-(everything - low) @ np.array([0.0, 1.0, 0.0]) / max(high[1] - low[1], 1e-300), kind="stable")
    dots = [
        Html(
            f'<circle class="s{kinds[i] % SERIES}" cx="{pixels(places[i, 0])}" cy="{pixels(places[i, 1])}" r="1.6" '
            'fill-opacity="0.55"/>'
        )
        for i in order.tolist()
    ]
    return svg(join([_box(), *dots, _names(axes, low, high)]), label)


def _placed(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the places (n, 2), in pixels, of points (n, 3) of the unit cube."""
    corners = _corners() @ VIEW.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scaled = (unit @ VIEW.T - low) / (high - low) * room
    return np.column_stack([MARGIN + scaled[:, 0], HEIGHT - MARGIN - scaled[:, 1]])


def _corners() -> NDArray[np.float64]:
    return np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=np.float64)


def _box() -> Html:
    corners = _corners()
    places = _placed(corners)
    edges = [
        f"M{pixels(places[i, 0])} {pixels(places[i, 1])}L{pixels(places[j, 0])} {pixels(places[j, 1])}"
        for i in range(8)
        for j in range(i + 1, 8)
        if np.abs(corners[i] - corners[j]).sum() == 1
    ]
    return Html(f'<path class="grid" d="{"".join(edges)}"/>')


def _names(axes: Sequence[str], low: NDArray[np.float64], high: NDArray[np.float64]) -> Html:
    """Write each axis' name and range along its outer edge."""
    middles = np.array([[0.5, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.0, 0.5]])
    shifts = [(0.0, 16.0, "mid"), (8.0, 12.0, ""), (-6.0, 0.0, "end")]
    written = []
    for axis, (place, (right, down, anchor)) in enumerate(zip(_placed(middles), shifts, strict=True)):
        text = f"{axes[axis]} {low[axis]:.3g} to {high[axis]:.3g}"
        kind = f' class="{anchor}"' if anchor else ""
        turned = f' transform="rotate(-90 {pixels(place[0] - 8)} {pixels(place[1])})"' if anchor == "end" else ""
        kind = ' class="mid"' if turned else kind
        written.append(
            Html(f'<text{kind}{turned} x="{pixels(place[0] + right)}" y="{pixels(place[1] + down)}">{esc(text)}</text>')
        )
    return join(written)
