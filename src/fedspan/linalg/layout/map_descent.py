"""Forces on the points of a t-SNE map, and a step along them: pure functions on arrays.

The gradient of t-SNE at point i (van der Maaten and Hinton 2008), times n / 4, on a graph of rows and massless centres:

    sum_l p_il q_il (y_i - c_l) + sum_j p_ij q_ij (y_i - y_j)  -  n / Z sum_j q_ij^2 (y_i - y_j),   q = 1 / (1 + d^2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.array_backend import namespace
from fedspan.linalg.layout.map_graph import MapGraph

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: A gain grows by this much where a point keeps its direction, and shrinks by this factor where it turns.
_RAISE, _CUT, _LEAST_GAIN = 0.2, 0.8, 0.01


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
    D = Y[:, None] - centres[graph.near]
    far = 1.0 + np.vecdot(D, D)
    weights = graph.pull / far
    force = np.einsum("nk,nkq->nq", weights, D)
    stretch = 2.0 * float(np.vdot(graph.pull, np.log(far)))
    if len(graph.tie):
        D = Y[graph.ends] - Y[graph.others]
        far = 1.0 + np.vecdot(D, D)
        tied = (graph.tie / far)[:, None] * D
        for axis in (0, 1):
            force[:, axis] += np.bincount(graph.ends, tied[:, axis], minlength=len(Y))
        stretch += float(np.vdot(graph.tie, np.log(far)))
    return Pulls(force, stretch)


def centre_sums(Y: Matrix, graph: MapGraph, centres: Matrix) -> Matrix:
    """Return for each centre the sums (L, 3) of ``w y`` and ``w = p q`` over rows: their mean is its new position."""
    D = Y[:, None] - centres[graph.near]
    weights = graph.pull / (1.0 + np.vecdot(D, D))
    near = graph.near.ravel()
    columns = [weights * Y[:, :1], weights * Y[:, 1:], weights]
    return np.stack([np.bincount(near, column.ravel(), minlength=len(centres)) for column in columns], axis=1)


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
