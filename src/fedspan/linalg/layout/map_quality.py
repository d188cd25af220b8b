"""The quality of a map: the share of rows' true neighbours that are their neighbours on the map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.layout.map_graph import plain

Indices = NDArray[np.integer[Any]]

_BLOCK_ROWS = 1024


def map_neighbors(positions: Array, k: int, rows: Array | None = None) -> Indices:
    """Return the k <= n - 1 nearest other rows (m, k) of all rows of a map, or of `rows` (m,); nearest first.

    `positions` (n, c) must have few columns: the search uses a tree.
    """
    from scipy.spatial import cKDTree

    own = np.arange(len(positions)) if rows is None else np.asarray(rows)
    found = cKDTree(positions).query(positions[own], k + 1)[1]
    # A row comes first among its own neighbours, unless others coincide with it.
    itself = found == own[:, None]
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(found[~itself].reshape(len(own), k))


def shared_neighbors(found: Indices, truth: Indices) -> float:
    """Return the share of the entries of `truth` (n, k) that are in the same row of `found` (n, l)."""
    hits = 0
    for start in range(0, len(truth), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        hits += int(np.count_nonzero((truth[part, :, None] == found[part, None, :]).any(axis=2)))
    return hits / truth.size


def plain_distances(X: Array) -> LowRankDistances:
    """Return the Euclidean distances of pooled rows X (n, m) about their mean, in the form of a neighbour search."""
    return plain(X - X.mean(axis=0, dtype=np.float64))
