"""Clusters of a few points at the coordinator: k-means, k-medoids by losses, and average linkage with its gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from fedspan.errors import InputError

Array = NDArray[np.float64]
Labels = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class KMeans:
    """What `k_means` found: `centres` (k, d), the `labels` (L,) of the points, and the weighted squared distances."""

    centres: Array
    labels: Labels
    cost: float


def k_means(
    points: Array, k: int, rng: np.random.Generator, weights: Array | None = None, starts: int = 10, rounds: int = 100
) -> KMeans:
    """Cluster `points` (L, d) around k centres: the best of a few k-means++ starts.

    Fewer distinct points than k leave some centres without points of their own.

    Examples
    --------
    >>> found = k_means(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, np.random.default_rng(0))
    >>> np.sort(found.centres[:, 0])
    array([0.05, 5.05])
    """
    if not 1 <= k <= len(points):
        raise InputError(f"k={k} must be between 1 and the number of points, {len(points)}")
    w = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    tries = [_lloyd(points, _spread_out(points, k, rng, w), w, rounds) for _ in range(starts)]
    return min(tries, key=lambda found: found.cost)


def k_medoids(losses: Array, k: int, weights: Array | None = None) -> NDArray[np.intp]:
    """Choose k of A candidates by what each costs every judge: the smallest sum of everybody's cheapest candidate.

    Greedy, then by exchange of single candidates while that helps. Deterministic.

    Parameters
    ----------
    losses : (L, A) array
    weights : (L,) array, optional

    Returns
    -------
    chosen : (k,) array of columns

    Examples
    --------
    >>> k_medoids(np.array([[0.0, 1.0, 5.0], [1.0, 0.5, 5.0], [5.0, 5.0, 0.0]]), 2)
    array([0, 2])
    """
    if not 1 <= k <= losses.shape[1]:
        raise InputError(f"k={k} must be between 1 and the number of candidates, {losses.shape[1]}")
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


def linkage_gap(points: Array, k: int) -> tuple[Labels, float]:
    """Cut the average-linkage tree of `points` (L, d) into k clusters; return the labels and how clear the cut is.

    The gap is the merge height that the cut lies below over the highest one above which it lies: large where k tight
    clusters are far apart, about 1 where the cut goes through a cluster. With k = 1 or k = L nothing can be compared,
    and it is infinite or 0.

    Examples
    --------
    >>> labels, gap = linkage_gap(np.array([[0.0], [0.1], [5.0], [5.2]]), 2)
    >>> labels, round(gap, 1)
    (array([0, 0, 1, 1]), 25.2)
    """
    L = len(points)
    if not 1 <= k <= L:
        raise InputError(f"k={k} must be between 1 and the number of points, {L}")
    if k == 1:
        return np.zeros(L, dtype=np.intp), np.inf
    if k == L:
        return np.arange(L), 0.0
    tree = linkage(points, "average")
    labels = np.asarray(fcluster(tree, k, "maxclust") - 1, dtype=np.intp)
    above, below = tree[L - k, 2], tree[L - k - 1, 2]
    return labels, float(above / below) if below > 0.0 else np.inf


def _spread_out(points: Array, k: int, rng: np.random.Generator, weights: Array) -> Array:
    """Draw k centres among the points, far ones more likely (k-means++)."""
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    for _ in range(k - 1):
        odds = weights * _squared_distances(points, points[chosen]).min(axis=1)
        odds = odds if odds.sum() > 0.0 else weights
        chosen.append(int(rng.choice(len(points), p=odds / odds.sum())))
    return points[chosen]


def _lloyd(points: Array, centres: Array, weights: Array, rounds: int) -> KMeans:
    labels = np.full(len(points), -1, dtype=np.intp)
    for _ in range(rounds):
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


def _squared_distances(points: Array, centres: Array) -> Array:
    return np.stack([np.sum((points - centre) ** 2, axis=1) for centre in centres], axis=1)
