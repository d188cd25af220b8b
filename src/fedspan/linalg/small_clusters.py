"""Clusters of a few points at the coordinator: k-means, k-medoids, average linkage; matches of two clusterings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment

from fedspan.arrays import Floats
from fedspan.checks import whole_number
from fedspan.errors import InputError

Labels = NDArray[np.intp]

_MOST_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class KMeans:
    """The result of `k_means`: `centres` (k, d), `labels` (L,) of the points, and the sum of squared distances."""

    centres: Floats
    labels: Labels
    cost: float


def k_means(
    points: Floats, k: int, rng: np.random.Generator, weights: Floats | None = None, starts: int = 10
) -> KMeans:
    """Cluster `points` (L, d) around k centres: the best of a few k-means++ starts.

    With fewer distinct points than k, some centres have no points of their own.

    Examples
    --------
    >>> found = k_means(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, np.random.default_rng(0))
    >>> np.sort(found.centres[:, 0])
    array([0.05, 5.05])
    """
    whole_number("k", k, 1, len(points), why=", the number of points")
    w = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    tries = [_lloyd(points, _spread_out(points, k, rng, w), w) for _ in range(starts)]
    return min(tries, key=lambda found: found.cost)


def k_medoids(losses: Floats, k: int, weights: Floats | None = None) -> NDArray[np.intp]:
    """Return the k of A columns with the smallest (weighted) sum over the rows of `losses` (L, A) of their minimum.

    Greedy, then by exchange of single columns while that helps. Deterministic.
    """
    whole_number("k", k, 1, losses.shape[1], why=", the number of candidates")
    w = np.ones(len(losses)) if weights is None else np.asarray(weights, dtype=np.float64)
    chosen = [int(np.argmin(w @ losses))]
    while len(chosen) < k:
        best = losses[:, chosen].min(axis=1)
        chosen.append(int(np.argmin(w @ np.minimum(best[:, None], losses))))
    cost, before = float(w @ losses[:, chosen].min(axis=1)), np.inf
    while cost < before:
        before = cost
        for place in range(k if k > 1 else 0):
            others = losses[:, chosen[:place] + chosen[place + 1 :]].min(axis=1)
            costs = w @ np.minimum(others[:, None], losses)
            if costs.min() < cost * (1.0 - 1e-12):
                chosen[place], cost = int(np.argmin(costs)), float(costs.min())
    return np.array(sorted(chosen), dtype=np.intp)


def linkage_gap(points: Floats, k: int) -> tuple[Labels, float]:
    """Cut the average-linkage tree of `points` (L, d) into k clusters; return the labels and how clear the cut is.

    The gap is the merge height just above the cut over the one just below it. It is large where k tight clusters are
    far apart, and about 1 where the cut goes through a cluster. It is infinite with k = 1, and 0 with k = L.
    """
    L = len(points)
    whole_number("k", k, 1, L, why=", the number of points")
    if k == 1:
        return np.zeros(L, dtype=np.intp), np.inf
    if k == L:
        return np.arange(L), 0.0
    tree = linkage(points, "average")
    labels = np.asarray(fcluster(tree, k, "maxclust") - 1, dtype=np.intp)
    above, below = tree[L - k, 2], tree[L - k - 1, 2]
    return labels, float(above / below) if below > 0.0 else np.inf


def bottleneck_distance(models: ArrayLike, truth: ArrayLike) -> float:
    """Return ``min over permutations p of max_j ||models[p(j)] - truth[j]||`` of two (k, d) arrays.

    This is the error of a mixture of regressions. The permutation of the smallest sum may have a larger maximum.

    Examples
    --------
    >>> bottleneck_distance([[0.0], [1.0]], [[1.1], [0.2]])
    0.2
    """
    A, B = np.asarray(models, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if A.shape != B.shape or A.ndim != 2 or not A.size:
        raise InputError(f"models and truth must be (k, d) arrays of one shape, not {A.shape} and {B.shape}")
    distances = np.linalg.norm(A[:, None] - B[None], axis=2)
    heights = np.unique(distances)
    low, high = 0, len(heights) - 1  # bisect for the smallest height that some permutation does not exceed
    while low < high:
        middle = (low + high) // 2
        rows, columns = linear_sum_assignment(distances > heights[middle])
        if (distances[rows, columns] <= heights[middle]).all():
            high = middle
        else:
            low = middle + 1
    return float(heights[low])


def matched_share(labels: ArrayLike, truth: ArrayLike) -> float:
    """Return the share of labels that agree with the truth after the best matching of their names.

    Examples
    --------
    >>> matched_share([1, 1, 0, 0], [0, 0, 0, 1])
    0.75
    """
    a, b = np.asarray(labels), np.asarray(truth)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise InputError(f"labels and truth must be vectors of one length, not of the shapes {a.shape} and {b.shape}")
    names_a, found = np.unique(a, return_inverse=True)
    names_b, right = np.unique(b, return_inverse=True)
    together = np.zeros((len(names_a), len(names_b)))
    np.add.at(together, (found, right), 1)
    return float(together[linear_sum_assignment(-together)].sum() / len(a))


def _spread_out(points: Floats, k: int, rng: np.random.Generator, weights: Floats) -> Floats:
    """Draw k centres among the points, far ones more likely (k-means++)."""
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    nearest = np.full(len(points), np.inf)
    for _ in range(k - 1):
        nearest = np.minimum(nearest, np.sum((points - points[chosen[-1]]) ** 2, axis=1))
        odds = weights * nearest
        odds = odds if odds.sum() > 0.0 else weights
        chosen.append(int(rng.choice(len(points), p=odds / odds.sum())))
    return points[chosen]


def _lloyd(points: Floats, centres: Floats, weights: Floats) -> KMeans:
    labels = np.full(len(points), -1, dtype=np.intp)
    for _ in range(_MOST_ROUNDS):
        distances = _squared_distances(points, centres)
        found = distances.argmin(axis=1)
        if np.array_equal(found, labels):
            break
        labels, centres = found, centres.copy()
        for j in range(len(centres)):
            members = (labels == j) & (weights > 0.0)
            if members.any():
                centres[j] = np.average(points[members], axis=0, weights=weights[members])
    distances = _squared_distances(points, centres)
    return KMeans(centres, distances.argmin(axis=1), float(weights @ distances.min(axis=1)))


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    return np.stack([np.sum((points - centre) ** 2, axis=1) for centre in centres], axis=1)
