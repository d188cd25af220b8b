"""Starts of federated k-means: by splitting centres, or around draws from coarser centres.

*By splitting.* Beginning with the mean, centres are split where the squared distances are large (the weights of
k-means++, Arthur and Vassilvitskii 2007, by clusters instead of rows), four times as many from stage to stage. A new
centre is its parent moved a little: in many dimensions a point drawn like a row is closest to no row. With enough rows
three times as many centres are made, and then clustered by their weights at the coordinator, as in k-means|| (Bahmani
et al. 2012).

*Around draws.* A child's rows are nearly its parent's: the difference of their sums would reveal the rest. So with
guarded sums the coordinator draws points around the means of few and large sets, as spread as the rows are, and
clusters these. Each start has its own draws; the large sets are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.clustering.parts.rows_by_centre import Moved
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.linalg.small_clusters import k_means
from fedspan.sums.moments import Moments

Matrix = NDArray[np.float64]

#: The growth of the number of centres from stage to stage, and the distance of a new one from its parent, in units of
#: the root mean squared distance of the parent's rows.
_GROWTH = 4
_NUDGE = 0.2
#: Rounds of the start with all centres, after each of which those with too few rows are placed again.
_SETTLING = 3
#: Centres made for each one that is wanted, with enough rows; they are then clustered by their weights.
_CANDIDATES = 3
#: Draws for each centre up to a total, but at least four each, and rounds of Lloyd's algorithm on them.
_DRAWS, _MOST_DRAWS, _DRAWN_ROUNDS = 20, 10_000, 10


@dataclass(frozen=True)
class KMeansStart:
    """Starts (b, k, d) about the mean, from rounds of k-means (`move`) with other numbers of centres."""

    move: Callable[[Matrix], Moved]
    rng: np.random.Generator
    found: Moments
    least_rows: int

    def split(self, n_clusters: int, n_init: int) -> Matrix:
        """Return `n_init` starts by splitting centres."""
        now = self._one_centre(n_init)
        candidates = self._candidates(n_clusters)
        sizes = [_GROWTH**stage for stage in range(1, candidates.bit_length()) if _GROWTH**stage < candidates]
        for size in [*sizes, *[candidates] * _SETTLING]:
            now = self.move(self._grown(now, size))
        return self._grown(now, n_clusters) if candidates == n_clusters else self._clustered(now, n_clusters)

    def drawn(self, n_clusters: int, n_init: int) -> Matrix:
        """Return `n_init` starts around draws."""
        now = self._one_centre(1)
        candidates = self._candidates(n_clusters)
        for size in (candidates // _GROWTH**2, candidates // _GROWTH):
            if size >= _GROWTH:
                now = self.move(self._around_draws(now, size)[None])
        C = np.stack([self._around_draws(now, candidates) for _ in range(n_init)])
        for _ in range(_SETTLING):
            now = self.move(C)
            C = self._grown(now, candidates)
        return C if candidates == n_clusters else self._clustered(now, n_clusters)

    def _candidates(self, n_clusters: int) -> int:
        """Return the number of centres before they are clustered, which the number of rows limits."""
        return max(n_clusters, min(_CANDIDATES * n_clusters, self.found.n // (4 * self.least_rows)))

    def _clustered(self, now: Moved, n_clusters: int) -> Matrix:
        """Return centres of centres, weighted by their numbers of rows."""
        weights = np.where(now.counts >= self.least_rows, now.counts, 1e-9)
        pairs = zip(now.centres, weights, strict=True)
        return np.stack([k_means(C, n_clusters, self.rng, own).centres for C, own in pairs])

    def _one_centre(self, n_init: int) -> Moved:
        """Return all rows at their mean."""
        n, squares = self.found.n, self.found.n * self.found.variance.sum()
        centres = np.zeros((n_init, 1, len(self.found.mean)))
        return Moved(centres, np.full((n_init, 1), n), np.full((n_init, 1), squares), np.zeros(n_init))

    def _around_draws(self, now: Moved, size: int) -> Matrix:
        """Return the centres (size, d) of points drawn around the first set of centres, as spread as its rows are."""
        C, counts = now.centres[0], now.counts[0]
        enough = counts >= self.least_rows
        C, counts = (C[enough], counts[enough]) if enough.any() else (C, counts + 1)
        odds = counts / counts.sum()
        within = np.sqrt(np.maximum(self.found.variance - odds @ C**2, 0.0))
        n = max(4 * size, min(_DRAWS * size, _MOST_DRAWS))
        points = C[self.rng.choice(len(C), n, p=odds)] + within * self.rng.standard_normal((n, C.shape[1]))
        drawn = points[self.rng.choice(n, size, replace=False)]
        for _ in range(_DRAWN_ROUNDS):
            labels = np.concatenate([closest(points[at : at + 1024], drawn[None])[:, 0] for at in range(0, n, 1024)])
            rows = np.bincount(labels, minlength=size)
            order = np.argsort(labels, kind="stable")
            some = np.flatnonzero(rows)
            starts = (np.cumsum(rows) - rows)[some]
            drawn[some] = np.add.reduceat(points[order], starts) / rows[some, None]
        return np.asarray(drawn)

    def _grown(self, now: Moved, size: int) -> Matrix:
        """Return `size` centres for each start: those with enough rows, and new ones beside parents.

        Parents are drawn by squared distances.
        """
        variance, grown = self.found.variance, []
        total = max(float(variance.sum()), np.finfo(float).tiny)
        for C, counts, spread in zip(now.centres, now.counts, now.spread, strict=True):
            enough = np.flatnonzero(counts >= self.least_rows)
            kept = enough[:size] if len(enough) else np.array([counts.argmax()])
            odds = spread[kept] if spread[kept].sum() > 0.0 else np.maximum(counts[kept], 1.0)
            parents = self.rng.choice(kept, size - len(kept), p=odds / odds.sum())
            radius = np.sqrt(spread[parents] / np.maximum(counts[parents], 1) / total)
            nudges = self.rng.standard_normal((len(parents), C.shape[1])) * np.sqrt(variance)
            grown.append(np.concatenate([C[kept], C[parents] + _NUDGE * radius[:, None] * nudges]))
        return np.stack(grown)
