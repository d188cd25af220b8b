"""The fuzzy graph of UMAP (McInnes, Healy and Melville 2018, Algorithms 2 and 3), on numpy or on a GPU.

A row's membership in the neighbourhood of another is 1 for its nearest neighbour, and falls with the distance. All
memberships of a row add up to ``log2 k``. Two rows are tied with the weight ``a + b - a b`` of their two memberships.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from fedspan.linalg.array_backend import namespace, to_numpy
from fedspan.linalg.subspaces import with_fixed_signs

Array = Any  # of numpy, or of any library that follows the array API

_HALVINGS = 48
#: The least width of a neighbourhood, in units of a row's mean distance to its neighbours, or of all mean distances.
_LEAST_WIDTH = 1e-3


@dataclass(frozen=True)
class FuzzyGraph:
    """Pairs of n rows, each once: `heads` < `tails` (m,), and their `weights` between 0 and 1."""

    heads: Array
    tails: Array
    weights: Array
    n: int


def fuzzy_graph(indices: Array, distances: Array) -> FuzzyGraph:
    """Return the graph of rows whose k nearest other rows are `indices` (n, k), at `distances` (n, k), nearest first.

    A row counts among its own neighbours, as in UMAP: k is its ``n_neighbors`` less 1.
    """
    heads, tails, one, other = each_pair_once(indices, memberships(distances))
    return FuzzyGraph(heads, tails, one + other - one * other, len(indices))


def each_pair_once(indices: Array, values: Array) -> tuple[Array, Array, Array, Array]:
    """Return the pairs of rows and their neighbours, each once: `heads` < `tails` (m,), and the values of both rows.

    `values` (n, k) are those of rows with their neighbours `indices` (n, k). A row that is not a neighbour of the other
    has the value 0.

    Examples
    --------
    >>> heads, tails, one, other = each_pair_once(np.array([[1], [0], [1]]), np.array([[0.5], [0.25], [1.0]]))
    >>> heads, tails, one, other
    (array([0, 1]), array([1, 2]), array([0.5, 1. ]), array([0.25, 0.  ]))
    """
    xp = namespace(values)
    n, k = values.shape
    own = xp.broadcast_to(xp.arange(n, dtype=xp.int64, device=values.device)[:, None], (n, k))
    other = xp.asarray(indices, dtype=xp.int64)
    heads, tails = xp.minimum(own, other), xp.maximum(own, other)
    keys = xp.reshape(heads * n + tails, (-1,))
    order = xp.argsort(keys, stable=True)
    keys, inner = keys[order], xp.reshape(values, (-1,))[order]
    # A pair is there once, or twice in a row.
    same = keys[1:] == keys[:-1]
    no = xp.zeros(1, dtype=xp.bool, device=values.device)
    first = ~xp.concat([no, same])
    twice = xp.concat([same, no])
    back = xp.where(twice, xp.concat([inner[1:], inner[:1]]), xp.zeros_like(inner))
    keys = keys[first]
    return keys // n, keys % n, inner[first], back[first]


def graph_parts(graph: FuzzyGraph) -> int:
    """Return the number of parts of the graph that no tie joins."""
    if not isinstance(graph.weights, np.ndarray):
        return _parts_on_device(graph)
    return int(connected_components(_matrix(graph), directed=False, return_labels=False))


def _parts_on_device(graph: FuzzyGraph) -> int:
    """Return the same for tensors: every row takes the least number among its neighbours', until none changes."""
    import torch

    labels = torch.arange(graph.n, device=graph.heads.device)
    while True:
        least = torch.minimum(labels[graph.heads], labels[graph.tails])
        found = labels.scatter_reduce(0, graph.heads, least, "amin").scatter_reduce(0, graph.tails, least, "amin")
        found = found[found]
        if torch.equal(found, labels):
            return len(torch.unique(labels))
        labels = found


def spectral_start(graph: FuzzyGraph, q: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the q eigenvectors (n, q) of the normalised Laplacian after the constant one.

    Raises `scipy.sparse.linalg.ArpackError` where they are not found. For a graph in one part, in the machine's memory.
    """
    A = _matrix(graph)
    A = A + A.T
    roots = np.sqrt(np.maximum(np.asarray(A.sum(axis=0)).ravel(), np.finfo(float).tiny))
    scaled = diags_array(1 / roots) @ A @ diags_array(1 / roots)
    width = min(graph.n - 1, max(2 * (q + 1) + 1, int(np.sqrt(graph.n))))
    values, vectors = eigsh(scaled, q + 1, which="LA", ncv=width, tol=1e-4, v0=rng.standard_normal(graph.n))
    return with_fixed_signs(vectors[:, np.argsort(values)[::-1][1:]])


def _matrix(graph: FuzzyGraph) -> Any:
    heads, tails, weights = (to_numpy(part) for part in (graph.heads, graph.tails, graph.weights))
    return csr_array((weights.astype(np.float64), (heads, tails)), shape=(graph.n, graph.n))


def memberships(distances: Array) -> Array:
    """Return the memberships (n, k) of rows in the neighbourhoods of the others.

    Examples
    --------
    >>> memberships(np.array([[1.0, 2.0, 3.0]])).round(3)
    array([[1.   , 0.618, 0.382]])
    """
    xp = namespace(distances)
    k = distances.shape[1]
    infinite = xp.full_like(distances, xp.inf)
    nearest = xp.min(xp.where(distances > 0, distances, infinite), axis=1)
    nearest = xp.where(xp.isfinite(nearest), nearest, xp.zeros_like(nearest))
    beyond = xp.clip(distances - nearest[:, None], 0.0, None)
    target = float(np.log2(k + 1))
    low, high = xp.zeros_like(nearest), xp.full_like(nearest, xp.inf)
    mean = xp.sum(distances, axis=1) / (k + 1)
    # The unit of the distances decides where the search begins, so that no unit is too small for it.
    width = xp.where(mean > 0, mean, xp.ones_like(mean))
    for _ in range(_HALVINGS):
        wide = xp.sum(xp.exp(-beyond / width[:, None]), axis=1) > target
        high = xp.where(wide, width, high)
        low = xp.where(wide, low, width)
        width = xp.where(xp.isfinite(high), (low + high) / 2, width * 2)
    least = _LEAST_WIDTH * xp.where(nearest > 0, mean, xp.mean(mean))
    width = xp.maximum(width, least)
    width = xp.where(width > 0, width, xp.ones_like(width))
    return xp.exp(-beyond / width[:, None])
