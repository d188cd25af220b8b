"""Points in three dimensions, as a still picture: a box seen from above its corner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import HEIGHT, SERIES, WIDTH, path, pixels, svg, text
from fedspan.report.markup import Html

#: From the unit cube to the picture: the columns are the directions of the three axes, to the right and up.
VIEW = np.array([[0.82, -0.57, 0.0], [-0.22, -0.33, 0.84]])
MARGIN = 26
_CORNERS = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=np.float64)


def cloud(groups: Sequence[Sequence[Sequence[float]]], axes: Sequence[str], *, label: str) -> Html:
    """Draw groups of points (n, 3), each in its colour, within the box of them all; far points first.

    `axes` are three names, and `label` is a description for readers who can't see the picture.
    """
    arrays = [np.asarray(group, dtype=np.float64).reshape(-1, 3) for group in groups]
    everything = np.concatenate(arrays)
    low, high = everything.min(axis=0), everything.max(axis=0)
    unit = (everything - low) / np.where(high > low, high - low, 1.0)
    places = _placed(unit)
    kinds = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    dots = [
        Html(
            f'<circle class="s{kinds[i] % SERIES}" cx="{pixels(places[i, 0])}" cy="{pixels(places[i, 1])}" r="1.6" '
            'fill-opacity="0.55"/>'
        )
        for i in np.argsort(-unit[:, 1], kind="stable").tolist()  # by depth, all groups together
    ]
    corners = _placed(_CORNERS)
    edges = "".join(
        f"M{pixels(corners[i, 0])} {pixels(corners[i, 1])}L{pixels(corners[j, 0])} {pixels(corners[j, 1])}"
        for i in range(8)
        for j in range(i + 1, 8)
        if np.abs(_CORNERS[i] - _CORNERS[j]).sum() == 1
    )
    ranges = [f"{name} {a:.3g} to {b:.3g}" for name, a, b in zip(axes, low, high, strict=True)]
    # Each axis has its name and range along its outer edge.
    places = _placed(np.array([[0.5, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.0, 1.0]])) + np.array(
        [[0, 16], [8, 12], [-12, -8]]
    )
    names = [text(x, y, name, kind) for (x, y), name, kind in zip(places, ranges, ("mid", "", ""), strict=True)]
    return svg([path(edges, "grid"), *dots, *names], label)


def _placed(unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the places (n, 2), in pixels, of points (n, 3) of the unit cube."""
    corners = _CORNERS @ VIEW.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scaled = (unit @ VIEW.T - low) / (high - low) * room
    return np.column_stack([MARGIN + scaled[:, 0], HEIGHT - MARGIN - scaled[:, 1]])
