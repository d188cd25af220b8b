"""Where federated k-means starts: by splitting centres, or around draws from what coarser centres tell.

*By splitting.* Beginning with the mean, centres are split where the squared distances are (the weights of k-means++,
Arthur and Vassilvitskii 2007, by clusters instead of rows), four times as many from stage to stage. A new centre is its
parent moved a little: in many dimensions a point that is drawn like a row is closer to no row. Where there are rows
enough three times as many centres are made, and then clustered by their weights at the coordinator, as in k-means||
(Bahmani et al. 2012).

*Around draws.* A child's rows are nearly its parent's: sums of both would tell the rest. So where sums must not be so
alike the coordinator draws points around the means of few and large sets, as spread as the rows are, and clusters
these. Each start has its own draws; the large sets are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.linalg.small_clusters import k_means
from fedspan.sums.moments import Moments

Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

#: How many times as many centres from stage to stage of the start, and how far a new one is from its parent, in units
#: of the root mean squared distance of the parent's rows.
_GROWTH = 4
_NUDGE = 0.2
#: Rounds of the start with all centres, after each of which those with too few rows are placed anew.
_SETTLING = 3
#: So many times as many centres as are wanted, where there are rows enough; these are then clustered by their weights.
_CANDIDATES = 3
#: Draws for each centre, at least and at most of all, and rounds of Lloyd's algorithm on them.
_DRAWS, _LEAST_DRAWS, _DRAWN_ROUNDS = 20, 10_000, 10


@dataclass(frozen=True)
class Moved:
    """Centres after one round; how many rows each had before, their squared distances to it after, and all before."""

    centres: Matrix
    counts: Counts
    spread: Matrix
    inertia: Matrix


Move = Callable[[Matrix], Moved]


def split_start(
    move: Move, rng: np.random.Generator, found: Moments, n_clusters: int, n_init: int, least_rows: int
) -> Matrix:
    """Return `n_init` starts (b, k, d), about the mean."""
    if n_clusters == 1:
        return np.zeros((n_init, 1, len(found.mean)))
    now = _one_centre(found, n_init)
    candidates = _candidates(found, n_clusters, least_rows)
    sizes = [_GROWTH**stage for stage in range(1, candidates.bit_length()) if _GROWTH**stage < candidates]
    for size in [*sizes, *[candidates] * _SETTLING]:
        now = move(_all_grown(rng, now, size, found, least_rows))
    if candidates == n_clusters:
        return _all_grown(rng, now, n_clusters, found, least_rows)
    return _clustered(rng, now, n_clusters, least_rows)


def drawn_start(
    move: Move, rng: np.random.Generator, found: Moments, n_clusters: int, n_init: int, least_rows: int
) -> Matrix:
    """Return `n_init` starts (b, k, d), about the mean."""
    if n_clusters == 1:
        return np.zeros((n_init, 1, len(found.mean)))
    now = _one_centre(found, 1)
    candidates = _candidates(found, n_clusters, least_rows)
    sizes = [size for size in (candidates // _GROWTH**2, candidates // _GROWTH) if size >= _GROWTH]
    for size in sizes:
        now = move(_around_draws(rng, now, size, found, least_rows)[None])
    C = np.stack([_around_draws(rng, now, candidates, found, least_rows) for _ in range(n_init)])
    for _ in range(_SETTLING):
        now = move(C)
        C = _all_grown(rng, now, candidates, found, least_rows)
    return C if candidates == n_clusters else _clustered(rng, now, n_clusters, least_rows)


def _candidates(found: Moments, n_clusters: int, least_rows: int) -> int:
    """Return how many centres are made before they are clustered: as many as there are rows for."""
    return max(n_clusters, min(_CANDIDATES * n_clusters, found.n // (4 * least_rows)))


def _clustered(rng: np.random.Generator, now: Moved, n_clusters: int, least_rows: int) -> Matrix:
    """Return centres of centres, which weigh as much as they have rows."""
    chosen = [
        k_means(C, n_clusters, rng, np.where(counts >= least_rows, counts, 1e-9)).centres
        for C, counts in zip(now.centres, now.counts, strict=True)
    ]
    return np.stack(chosen)


def _one_centre(found: Moments, n_init: int) -> Moved:
    """Return all rows at their mean."""
    squares = np.full((n_init, 1), found.n * found.variance.sum())
    return Moved(np.zeros((n_init, 1, len(found.mean))), np.full((n_init, 1), found.n), squares, np.zeros(n_init))


def _around_draws(rng: np.random.Generator, now: Moved, size: int, found: Moments, least_rows: int) -> Matrix:
    """Return the centres (size, d) of points drawn around the first set of centres, as spread as its rows are."""
    enough = now.counts[0] >= least_rows
    C, counts = (now.centres[0][enough], now.counts[0][enough]) if enough.any() else (now.centres[0], now.counts[0] + 1)
    odds = counts / counts.sum()
    within = np.sqrt(np.maximum(found.variance - odds @ C**2, 0.0))
    n = max(4 * size, min(_DRAWS * size, _LEAST_DRAWS))
    points = C[rng.choice(len(C), n, p=odds)] + within * rng.standard_normal((n, C.shape[1]))
    drawn = points[rng.choice(n, size, replace=False)]
    for _ in range(_DRAWN_ROUNDS):
        labels = np.concatenate([closest(points[at : at + 1024], drawn[None])[:, 0] for at in range(0, n, 1024)])
        rows = np.bincount(labels, minlength=size)
        order = np.argsort(labels, kind="stable")
        some = np.flatnonzero(rows)
        starts = (np.cumsum(rows) - rows)[some]
        drawn[some] = np.add.reduceat(points[order], starts) / rows[some, None]
    return np.asarray(drawn)


def _all_grown(rng: np.random.Generator, now: Moved, size: int, found: Moments, least_rows: int) -> Matrix:
    return np.stack([_grown(rng, now, book, size, found, least_rows) for book in range(len(now.centres))])


def _grown(rng: np.random.Generator, now: Moved, book: int, size: int, found: Moments, least_rows: int) -> Matrix:
    """Return `size` centres: those with enough rows, and new ones beside parents drawn by squared distances."""
    C, counts, spread = now.centres[book], now.counts[book], now.spread[book]
    kept = np.flatnonzero(counts >= least_rows)
    if not len(kept):
        kept = np.array([counts.argmax()])
    kept = kept[:size]
    odds = spread[kept] if spread[kept].sum() > 0.0 else np.maximum(counts[kept], 1.0)
    parents = rng.choice(kept, size - len(kept), p=odds / odds.sum())
    total = max(float(found.variance.sum()), np.finfo(float).tiny)
    radius = np.sqrt(spread[parents] / np.maximum(counts[parents], 1) / total)
    nudges = rng.standard_normal((len(parents), C.shape[1])) * np.sqrt(found.variance)
    return np.concatenate([C[kept], C[parents] + _NUDGE * radius[:, None] * nudges])
