"""Rows that can be followed through the histograms of a map: those that are alone in their cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects, label
from scipy.spatial import cKDTree

Array = NDArray[Any]

#: How far a row may go in a round, in cells, and still be taken for the same.
_REACH = 2.0
_ALONE = 1e-6


def lone_rows(histogram: Array) -> Array:
    """Return the places (m, 2), in cells, of the rows that share no node with others: four nodes that add up to one.

    Examples
    --------
    >>> histogram = np.zeros((6, 6))
    >>> histogram[0, 0], histogram[4:, 4] = 7.0, [0.25, 0.75]
    >>> lone_rows(histogram)
    array([[4.75, 4.  ]])
    """
    groups, _ = label(histogram > _ALONE, structure=np.ones((3, 3)))
    places = []
    for number, (rows, columns) in enumerate(find_objects(groups), start=1):
        if rows.stop - rows.start > 2 or columns.stop - columns.start > 2:
            continue
        part = np.where(groups[rows, columns] == number, histogram[rows, columns], 0.0)
        if abs(part.sum() - 1.0) < _ALONE:
            at = np.argwhere(part > 0)
            places.append([rows.start, columns.start] + part[part > 0] @ at)
    return np.array(places).reshape(-1, 2)


def followed(histograms: Sequence[Array]) -> NDArray[np.int64]:
    """Return for each row that is alone in the last histogram for how many rounds it has been so without a gap.

    A row is the same in two rounds where each is the other's nearest and no more than two cells away. Cells move and
    grow from round to round: places are compared about the mean of all rows, in units of their spread.
    """
    before, lengths = np.empty((0, 2)), np.empty(0, dtype=np.int64)
    for histogram in histograms:
        places = lone_rows(histogram)
        mean, spread = _moments(histogram)
        now = (places - mean) / spread
        found = np.ones(len(now), dtype=np.int64)
        if len(now) and len(before):
            distance, old = cKDTree(before).query(now)
            back = cKDTree(now).query(before)[1]
            same = (distance <= _REACH / spread) & (back[old] == np.arange(len(now)))
            found[same] += lengths[old[same]]
        before, lengths = now, found
    return lengths


def _moments(histogram: Array) -> tuple[Array, float]:
    """Return the mean of all rows, in cells, and the root of their mean squared distance from it."""
    nodes = np.indices(histogram.shape).reshape(2, -1).T
    weights = histogram.ravel() / max(float(histogram.sum()), 1e-300)
    mean = weights @ nodes
    return mean, max(float(np.sqrt(weights @ np.square(nodes - mean).sum(axis=1))), 1e-9)
