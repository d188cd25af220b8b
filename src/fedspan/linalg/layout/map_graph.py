"""The graph of a private map, whose ties attract rows to centres and rows; and new rows on an existing map.

Each row is tied to the nearest centres, and to the nearest rows of its own site. Weights fall with the distance so that
their entropy is that of a given number of neighbours, as in t-SNE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedspan.arrays import Array, Matrix
from fedspan.linalg.array_backend import namespace
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import nearest

Single = NDArray[np.float32]
Indices = NDArray[np.int32]

_HALVINGS = 50


@dataclass(frozen=True)
class MapGraph:
    """Ties of n rows.

    `near` (n, k) are the indices of the nearest centres, `pull` the strengths of their pull. `ends` and `others` (m,)
    are pairs of rows of this site, each in both directions, `tie` the strengths of their ties.
    """

    near: Indices
    pull: Single
    ends: Indices
    others: Indices
    tie: Single


def map_graph(
    X: Array, centres: Array, *, neighbours: int, perplexity: float, own: int, own_perplexity: float, own_share: float
) -> MapGraph:
    """Return the graph of rows X (n, r).

    Each is tied to `neighbours` centres, and to `own` rows with a share `own_share` of the pull. The only row of a site
    is tied to centres alone.
    """
    n, own = len(X), min(own, len(X) - 1)
    share = own_share if own > 0 else 0.0
    none = np.zeros(0, dtype=np.int32)
    if n == 0:
        empty = np.zeros((0, 1))
        return MapGraph(empty.astype(np.int32), empty.astype(np.float32), none, none, none.astype(np.float32))
    near, far = nearest(plain(centres), min(neighbours, len(centres)), plain(X))
    pull = ((1.0 - share) * perplexity_weights(far, _possible(perplexity, far))).astype(np.float32)
    if share == 0.0:
        return MapGraph(near, pull, none, none, none.astype(np.float32))
    rows, apart = nearest(plain(X), own)
    weights = perplexity_weights(apart, _possible(own_perplexity, apart))
    directed = csr_array((weights.ravel(), rows.ravel(), np.arange(0, n * own + 1, own)), shape=(n, n))
    both = ((0.5 * share) * (directed + directed.T)).tocoo()
    ends, others = (np.asarray(axis, dtype=np.int32) for axis in (both.row, both.col))
    return MapGraph(near, pull, ends, others, both.data.astype(np.float32))


def plain(X: Array) -> LowRankDistances:
    """Return the Euclidean distances of rows X (n, r) in the form of a neighbour search."""
    F = np.ascontiguousarray(X, dtype=np.float32)
    return LowRankDistances(F, np.full(F.shape[1], -2, dtype=np.float32), np.vecdot(F, F), squared=True)


def _possible(perplexity: float, distances: Array) -> float:
    """Return the perplexity, or two thirds of the number of neighbours if that is smaller."""
    return float(max(1.0, min(perplexity, 2.0 * distances.shape[1] / 3.0)))


def perplexity_weights(distances: Any, perplexity: float) -> Any:
    """Return weights (n, k), ``exp(-beta_i d_ij^2)`` over their sum, with the entropy of `perplexity` neighbours.

    In double precision, on the device of the distances.
    """
    xp = namespace(distances)
    squares = xp.asarray(distances, dtype=xp.float64) ** 2
    squares = squares - xp.min(squares, axis=1, keepdims=True)
    widest = xp.max(squares, axis=1, keepdims=True)
    squares = squares / xp.where(widest > 0, widest, xp.ones_like(widest))
    # ln beta by bisection: the entropy falls with it
    low, high = xp.full_like(widest, -20.0), xp.full_like(widest, 60.0)
    weights = squares
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        weights = xp.exp(-xp.exp(middle) * squares)
        weights = weights / xp.sum(weights, axis=1, keepdims=True)
        entropy = -xp.sum(weights * xp.log(xp.clip(weights, 1e-300, None)), axis=1, keepdims=True)
        wide = entropy > float(np.log(perplexity))
        low, high = xp.where(wide, middle, low), xp.where(wide, high, middle)
    return weights


def placed(embedding: Array, indices: Array, distances: Array, perplexity: float) -> Matrix:
    """Return positions (n, q): the means of the neighbours' positions, weighted by their `distances` (n, k)."""
    weights = perplexity_weights(distances, min(perplexity, indices.shape[1]))
    return np.asarray(np.einsum("ik,ikq->iq", weights, np.asarray(embedding, dtype=np.float64)[indices]))
