"""How well a map keeps neighbourhoods: the share of rows' true neighbours that are their neighbours on the map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.kernels.landmark_form import LowRankDistances

Array = NDArray[Any]
Indices = NDArray[np.integer[Any]]

_BLOCK_ROWS = 1024


def map_neighbors(positions: Array, k: int, rows: Array | None = None) -> Indices:
    """Return the k nearest rows (n, k) of all `rows` of a map, or of some, but themselves; nearest first.

    Parameters
    ----------
    positions : array (n, c)
        Few columns: the search is by a tree.
    k : int
        At most n - 1.
    rows : int array (m,), optional
        Default: all.

    Examples
    --------
    >>> map_neighbors(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]), 1).ravel()
    array([1, 0, 1])
    """
    from scipy.spatial import cKDTree

    own = np.arange(len(positions)) if rows is None else np.asarray(rows)
    found = cKDTree(positions).query(positions[own], k + 1)[1]
    # A row comes first among its own neighbours, unless others lie at the very same place.
    itself = found == own[:, None]
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(found[~itself].reshape(len(own), k))


def shared_neighbors(found: Indices, truth: Indices) -> float:
    """Return the share of the entries of `truth` (n, k) that are in the same row of `found` (n, l).

    Examples
    --------
    >>> shared_neighbors(np.array([[1, 2], [0, 2]]), np.array([[2, 3], [2, 0]]))
    0.75
    """
    hits = 0
    for start in range(0, len(truth), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        hits += int(np.count_nonzero((truth[part, :, None] == found[part, None, :]).any(axis=2)))
    return hits / truth.size


def plain_distances(X: Array) -> LowRankDistances:
    """Return the Euclidean distances of rows X (n, m) that are in one place, in the form of a neighbour search."""
    D = np.asarray(X - X.mean(axis=0, dtype=np.float64), dtype=np.float32)
    return LowRankDistances(D, np.full(D.shape[1], -2, dtype=np.float32), np.vecdot(D, D), squared=True)
