"""The graph of a private map: which rows and centres attract each row, and how much.

Each row is tied to the nearest centres, and to the nearest rows of its own site. Weights fall with the distance so that
their entropy is that of a given number of neighbours, as in t-SNE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.placement import perplexity_weights

Array = NDArray[Any]
Single = NDArray[np.float32]
Indices = NDArray[np.int32]


@dataclass(frozen=True)
class MapGraph:
    """Ties of n rows.

    Attributes
    ----------
    near, pull : array (n, k)
        Numbers of the nearest centres, and what each pulls.
    ends, others, tie : array (m,)
        Pairs of rows of this site, each in both directions, and how strong the tie is.
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

    Each is tied to `neighbours` centres, and to `own` rows with a part `own_share` of the pull. Rows of a site that has
    no others are held by centres alone.
    """
    n, own = len(X), min(own, len(X) - 1)
    share = own_share if own > 0 else 0.0
    none = np.zeros(0, dtype=np.int32)
    if n == 0:
        nobody = np.zeros((0, 1))
        return MapGraph(nobody.astype(np.int32), nobody.astype(np.float32), none, none, none.astype(np.float32))
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
    """Return Euclidean distances in the form that the neighbour search takes."""
    F = np.ascontiguousarray(X, dtype=np.float32)
    return LowRankDistances(F, np.full(F.shape[1], -2, dtype=np.float32), np.vecdot(F, F), squared=True)


def _possible(perplexity: float, distances: Array) -> float:
    """Return the perplexity, or where there are few neighbours two thirds of their number."""
    return float(max(1.0, min(perplexity, 2.0 * distances.shape[1] / 3.0)))
