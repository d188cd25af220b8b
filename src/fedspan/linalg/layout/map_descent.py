"""Forces on the points of a t-SNE map, and a step along them: pure functions on arrays.

The gradient of t-SNE at point i (van der Maaten and Hinton 2008), times n / 4, on a graph of rows and massless centres:

    sum_l p_il q_il (y_i - c_l) + sum_j p_ij q_ij (y_i - y_j)  -  n / Z sum_j q_ij^2 (y_i - y_j),   q = 1 / (1 + d^2)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from fedspan.arrays import Array, Matrix
from fedspan.linalg.array_backend import namespace
from fedspan.linalg.layout.map_graph import MapGraph

#: A gain grows by this much where a point keeps its direction, and shrinks by this factor where it turns.
_RAISE, _CUT, _LEAST_GAIN = 0.2, 0.8, 0.01
_PART_ROWS = 2048


@dataclass(frozen=True)
class Pulls:
    """The effect of the graph's ties at given positions.

    `force` (n, 2) is the attraction, `stretch` the sum of ``p log(1 + d^2)`` over all ties, from both ends of each. The
    loss of the map is ``stretch / n + log Z``.
    """

    force: Matrix
    stretch: float


def pulls(Y: Matrix, graph: MapGraph, centres: Matrix) -> Pulls:
    """Return the attraction of positions Y (n, 2) by the centres' positions (L, 2) and by tied rows."""
    force, stretch = np.zeros(Y.shape), 0.0
    for part, dx, dy, far in _apart(Y, graph.near, centres):
        pull = graph.pull[part]
        weights = pull / far
        force[part, 0], force[part, 1] = np.vecdot(weights, dx), np.vecdot(weights, dy)
        stretch += 2.0 * float(np.vdot(pull, np.log(far, out=far)))
    if len(graph.tie):
        (x, y), ends, others = np.ascontiguousarray(Y.T), graph.ends, graph.others
        dx, dy = x[ends] - x[others], y[ends] - y[others]
        far = 1.0 + dx * dx + dy * dy
        ties = graph.tie / far
        for axis, D in enumerate((dx, dy)):
            force[:, axis] += np.bincount(ends, ties * D, minlength=len(Y))
        stretch += float(np.vdot(graph.tie, np.log(far, out=far)))
    return Pulls(force, stretch)


def centre_sums(Y: Matrix, graph: MapGraph, centres: Matrix) -> Matrix:
    """Return for each centre the sums (L, 3) of ``w y`` and ``w = p q`` over rows: their mean is its new position."""
    n, k = graph.near.shape
    weights = np.empty((n, k))
    for part, _, _, far in _apart(Y, graph.near, centres):
        np.divide(graph.pull[part], far, out=weights[part])
    ends = np.arange(0, n * k + 1, k)
    tied = csc_array((weights.ravel(), graph.near.ravel(), ends), shape=(len(centres), n))
    return np.asarray(tied @ np.column_stack([Y, np.ones(n)]))


def _apart(Y: Matrix, near: Array, centres: Matrix) -> Iterator[tuple[slice, Matrix, Matrix, Matrix]]:
    """Yield parts of the rows, which fit a cache, with both coordinates of y - c (., k) and ``1 + d^2``."""
    (x, y), (cx, cy) = np.ascontiguousarray(Y.T), np.ascontiguousarray(centres.T)
    for start in range(0, len(Y), _PART_ROWS):
        part = slice(start, start + _PART_ROWS)
        dx, dy = x[part, None] - cx[near[part]], y[part, None] - cy[near[part]]
        yield part, dx, dy, 1.0 + dx * dx + dy * dy


@dataclass(frozen=True)
class Motion:
    """Positions (n, 2), their last moves, and the gains of each coordinate; of numpy or on a device."""

    Y: Any
    move: Any
    gains: Any


def moved(now: Motion, gradient: Any, *, rate: float, momentum: float, farthest: float) -> Motion:
    """Return the motion after one step of gradient descent with momentum and gains; no point goes beyond `farthest`."""
    xp = namespace(gradient)
    onward = xp.sign(gradient) != xp.sign(now.move)
    gains = xp.clip(xp.where(onward, now.gains + _RAISE, now.gains * _CUT), _LEAST_GAIN, None)
    move = momentum * now.move - rate * gains * gradient
    length = xp.sqrt(xp.vecdot(move, move))[:, None]
    move *= xp.clip(farthest / xp.clip(length, np.finfo(float).tiny, None), None, 1.0)
    return Motion(now.Y + move, move, gains)
