"""A spectral start: the directions in which clusters lie, then clusters of all sites in those, without anchors.

The directions are those of the moment matrix at one point (`moment_products`). In them a site is summed up by few
numbers, enough to find the best mixture of regressions there at the coordinator: alternating minimisation from several
k-means starts. Per product and site, each way: d (k + 2) numbers, which need only be summed, 10 times; then
once k (k + 2) + 2 numbers from each site, of which single ones are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.safe_arithmetic import norms
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.linalg import k_means
from fedspan.mixed_regression.parts.cluster_start import Start, check_clusters, chosen_by_votes, starting_point
from fedspan.mixed_regression.parts.moment_products import moment_product
from fedspan.mixed_regression.parts.regression_rows import row_blocks
from fedspan.pca.parts.orthogonal_iteration import Matrix, orthogonal_iteration, random_basis
from fedspan.sums.plausible_totals import refuse_absurd

_STARTS = 10
_ROUNDS = 50
_MOST_CANDIDATES = 400


@step("mixed_regression.coordinates", reveals="sums")
def local_coordinates(site: Site, start: Matrix, U: Matrix) -> dict[str, Any]:
    """Leaves the site: of its least squares in directions U (d, q): Gram matrix, moment, solution, residuals^2; n.

    With one pseudo-row of average size in the solution; the squared residuals are summed up.
    """
    q, n = U.shape[1], len(site)
    gram, moment, square = np.zeros((q, q)), np.zeros(q), 0.0
    for X, y in row_blocks(site):
        P, r = X @ U, y - X @ start
        gram += P.T @ P
        moment += P.T @ r
        square += float(r @ r)
    ridge = max(float(np.trace(gram)) / (q * max(n, 1)), np.finfo(np.float64).tiny)
    return {
        "gram": gram,
        "moment": moment,
        "square": square,
        "coordinates": np.linalg.solve(gram + ridge * np.eye(q), moment),
        "n": n,
    }


def spectral_start(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Matrix | None = None,
    subspace_iterations: int = 10,
    oversampling: int = 2,
    aggregator: Aggregator | None = None,
) -> Start:
    """Return coarse models (k, d) of the clusters.

    Parameters
    ----------
    start : array (d,), optional
        The point at which the moments are taken. Default: 0.
    aggregator : Aggregator, optional
        How the sites' products are combined. Clusters are then found by votes among the sites' own solutions, so that
        a minority of liars cannot buy a cluster unless it is as large as the smallest true one.
    """
    fed.need_single_replies("the spectral start")
    check_clusters(n_clusters, len(fed.sites))
    if subspace_iterations < 2 or oversampling < 0:
        raise InputError(f"{subspace_iterations=} must be at least 2, {oversampling=} at least 0")
    theta0 = starting_point(start, n_columns)
    if n_clusters == 1:
        return Start(theta0[None])
    rank = min(n_clusters, n_columns)
    Q = random_basis(fed.rng, n_columns, min(rank + oversampling, n_columns))[:, None]
    product = moment_product(theta0[None], aggregator)
    U = orthogonal_iteration(fed, product=product, start=Q, iterations=subspace_iterations, rank=rank)[0][:, 0]
    replies = fed.ask(local_coordinates, start=theta0, U=U)
    if len(replies) < n_clusters:
        raise InputError(f"only {len(replies)} sites answered, and n_clusters={n_clusters} needs as many at least")
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


def _losses(centres: Matrix, grams: NDArray[np.float64], moments: Matrix, squares: NDArray[np.float64]) -> Matrix:
    """Return the squared errors (L, k) of the sites at every centre."""
    quadratic = np.einsum("kq,lqp,kp->lk", centres, grams, centres)
    return np.asarray(squares[:, None] - 2.0 * moments @ centres.T + quadratic)


def _by_votes(replies: Replies, k: int, rng: np.random.Generator) -> Matrix:
    """Return the middles of the clusters that the sites' solutions form, where some of them may be lies."""
    points = replies.stack("coordinates")
    some = rng.permutation(len(points))[:_MOST_CANDIDATES]
    lengths = norms(points)[:, None]
    points = points * np.minimum(1.0, 10.0 * np.median(lengths) / np.maximum(lengths, np.finfo(np.float64).tiny))
    distances = np.stack([np.sum((points - points[i]) ** 2, axis=1) for i in some], axis=1)
    chosen = chosen_by_votes(distances, k)
    labels = distances[:, chosen].argmin(axis=1)
    # Candidates that coincide have the same sites, and all but one of them have none.
    own = [np.median(points[labels == j], axis=0) if (labels == j).any() else points[some[chosen[j]]] for j in range(k)]
    return np.stack(own)
