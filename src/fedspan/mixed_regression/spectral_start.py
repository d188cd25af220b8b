"""A spectral start: the directions in which clusters lie, then clusters of all sites in those, without anchors.

The directions are those of the moment matrix at one point (`moment_products`). In them few numbers describe a site, and
the coordinator finds the best mixture of regressions: alternating minimisation from several k-means starts. Per product
and site, each way: d (k + 2) numbers, which need only be summed, 10 times. Then once k (k + 2) + 2 numbers from each
site, of which single ones are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.safe_arithmetic import norms
from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Matrix, Stack, Vector
from fedspan.linalg import k_means
from fedspan.mixed_regression.parts.cluster_start import Start, checked_start, chosen_by_votes
from fedspan.mixed_regression.parts.moment_products import OVERSAMPLING, moment_product
from fedspan.mixed_regression.parts.regression_rows import ridge_solution, row_blocks
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis
from fedspan.sums.plausible_totals import refuse_absurd

_STARTS = 10
_ROUNDS = 50
_MOST_CANDIDATES = 400


@step("mixed_regression.coordinates", reveals="sums", moments=True)
def local_coordinates(site: Site, start: Vector, U: Matrix) -> dict[str, Any]:
    """Leaves the site: Gram matrix, moment and solution of its least squares in directions U (d, q), residuals^2, n.

    The solution has one pseudo-row of average size; the squared residuals from `start` are summed up.
    """
    q, n = U.shape[1], len(site)
    gram, moment, square = np.zeros((q, q)), np.zeros(q), 0.0
    for X, y in row_blocks(site):
        P, r = X @ U, y - X @ start
        gram += P.T @ P
        moment += P.T @ r
        square += float(r @ r)
    coordinates = ridge_solution(gram, moment, n)
    return {"gram": gram, "moment": moment, "square": square, "coordinates": coordinates, "n": n}


def spectral_start(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Vector | None = None,
    subspace_iterations: int = 10,
    aggregator: Aggregator | None = None,
) -> Start:
    """Return coarse models (k, d) of the clusters, from the moments at `start` (d,), by default 0.

    The `aggregator` is the rule that combines the sites' products. With one, clusters are found by votes among the
    sites' own solutions. A minority of malicious sites gets no cluster unless it is as large as the smallest true one.
    """
    fed.need_single_replies("the spectral start")
    theta0 = checked_start(fed.sites, n_clusters, n_columns, start)
    whole_number("subspace_iterations", subspace_iterations, 2)
    if n_clusters == 1:
        return Start(theta0[None])
    rank = min(n_clusters, n_columns)
    Q = random_basis(fed.rng, n_columns, min(rank + OVERSAMPLING, n_columns))[:, None]
    product = moment_product(theta0[None], aggregator)
    U = orthogonal_iteration(fed, product=product, start=Q, iterations=subspace_iterations, rank=rank)[0][:, 0]
    replies = fed.ask(local_coordinates, start=theta0, U=U)
    if len(replies) < n_clusters:
        raise InputError(f"only {len(replies)} sites replied: n_clusters={n_clusters} needs at least as many")
    find = _by_losses if aggregator is None else _by_votes
    return Start(theta0 + find(replies, n_clusters, fed.rng) @ U.T)


def _by_losses(replies: Replies, k: int, rng: np.random.Generator) -> Matrix:
    """Return the coordinates (k, q) of the mixture of smallest loss that alternating minimisation finds."""
    grams, moments, squares = replies.stack("gram"), replies.stack("moment"), replies.stack("square")
    points, counts = replies.stack("coordinates"), np.maximum(replies.stack("n"), 1).astype(np.float64)
    refuse_absurd(grams, moments, squares, points, counts)
    best, least = np.zeros((k, points.shape[1])), np.inf
    for _ in range(_STARTS):
        centres = k_means(points, k, rng, counts, starts=1).centres
        labels = np.full(len(points), -1)
        for _ in range(_ROUNDS):
            losses = _losses(centres, grams, moments, squares)
            found = losses.argmin(axis=1)
            if np.array_equal(found, labels):
                break
            labels = found
            for j in range(k):
                members = labels == j
                if members.any():
                    G = grams[members].sum(axis=0)
                    centres[j] = np.linalg.lstsq(G, moments[members].sum(axis=0), rcond=1e-10)[0]
        loss = float(_losses(centres, grams, moments, squares).min(axis=1).sum())
        if loss < least:
            best, least = centres, loss
    return best


def _losses(centres: Matrix, grams: Stack, moments: Matrix, squares: Vector) -> Matrix:
    """Return the squared errors (L, k) of the sites at every centre."""
    quadratic = np.einsum("kq,lqp,kp->lk", centres, grams, centres)
    return np.asarray(squares[:, None] - 2.0 * moments @ centres.T + quadratic)


def _by_votes(replies: Replies, k: int, rng: np.random.Generator) -> Matrix:
    """Return the medians of the clusters that the sites' solutions form, where some sites may be malicious."""
    points = replies.stack("coordinates")
    some = rng.permutation(len(points))[:_MOST_CANDIDATES]
    lengths = norms(points)[:, None]
    points = points * np.minimum(1.0, 10.0 * np.median(lengths) / np.maximum(lengths, np.finfo(np.float64).tiny))
    distances = np.stack([np.sum((points - points[i]) ** 2, axis=1) for i in some], axis=1)
    chosen = chosen_by_votes(distances, k)
    labels = distances[:, chosen].argmin(axis=1)
    # Of candidates that coincide, only one has sites.
    own = [np.median(points[labels == j], axis=0) if (labels == j).any() else points[some[chosen[j]]] for j in range(k)]
    return np.stack(own)
