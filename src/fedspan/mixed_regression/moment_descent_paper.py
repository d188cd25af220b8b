"""Federated moment descent as the paper states it, for comparison.

Phase 1 of L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression", NeurIPS 2022, with
the simplifications of their experiments: every iteration uses all rows and all sites. Features count as isotropic
(alpha = beta = 1).

It does not work at the sizes of their experiments. The moment matrix of two rows per site needs many more sites. The
power iteration leaves the sign of its vector open: half of the anchors move away from their model. And
``ceil(3 k log k)`` anchors miss a cluster more often than stated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from fedspan.checks import real_number
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, NotNegative, Positive, Stack, Vector
from fedspan.mixed_regression.moment_descent import own_anchor
from fedspan.mixed_regression.parts.cluster_start import Start, checked_start, local_size
from fedspan.mixed_regression.parts.moment_products import pair_product
from fedspan.mixed_regression.parts.regression_rows import of_halves, target
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis

_POWER_ITERATIONS = 20
_EPSILON = 0.1  # of the separation: an anchor with a smaller residual stops


@step("mixed_regression.paper_descent", reveals="sums", fewest=of_halves)
def local_paper_descent(
    site: Site, models: Matrix, U: Stack, separation: Positive, epsilon: NotNegative
) -> dict[str, Any]:
    """Lines 11 to 15. Leaves the site: its model's change, k numbers in its own directions ``U[:, a]``."""
    a = own_anchor(site, models)
    X = np.asarray(site.X, dtype=np.float64)
    e = (target(site) - X @ models[a])[:, None] * (X @ U[:, a])
    half = len(e) // 2
    A = e[:half].T @ e[half : 2 * half] / max(half, 1)
    beta = site.rng.standard_normal(U.shape[2])
    for _ in range(_POWER_ITERATIONS):
        beta = A @ (A.T @ beta)
        beta /= max(float(np.linalg.norm(beta)), np.finfo(np.float64).tiny)
    sigma = float(np.sqrt(np.linalg.norm(A.T @ beta)))  # of the residual: the singular value of A is its square
    change = sigma / 2.0 * beta if sigma > epsilon * separation else np.zeros(U.shape[2])
    site.state["anchor model"] = models[a] + U[:, a] @ change
    return {"change": change}


def moment_descent_paper(
    fed: Federation,
    *,
    n_clusters: int,
    start: Vector,
    separation: float,
    iterations: int = 5,
    subspace_iterations: int = 20,
) -> Start:
    """Return the centres of groups of anchors' models that are closer to each other than half the `separation`.

    Of more than k groups, the k largest count; in place of missing groups stands the `start` (d,).
    """
    start = checked_start(fed.sites, n_clusters, len(start), start)
    real_number("separation", separation, above=0)
    fed.need_single_replies("moment descent")
    k, d = n_clusters, len(start)
    sizes = {name: int(reply["n"]) for name, reply in fed.ask(local_size).ok.items()}
    eligible = [name for name in sizes if sizes[name] >= 4 * k] or list(sizes)
    wanted = min(max(k, int(np.ceil(3 * k * np.log(k)))), len(eligible))
    anchors = tuple(sorted(fed.rng.choice(eligible, size=wanted, replace=False).tolist()))
    models = np.tile(start, (len(anchors), 1))
    for t in range(iterations):
        at = models[:1] if t == 0 else models
        Q = np.stack([random_basis(fed.rng, d, min(k, d)) for _ in at], axis=1)
        left, right = (pair_product(at, transposed=transposed) for transposed in (False, True))
        U, _ = orthogonal_iteration(fed, product=left, transposed=right, start=Q, iterations=subspace_iterations // 2)
        U = np.repeat(U, len(anchors), axis=1) if t == 0 else U
        replies = fed.ask(local_paper_descent, anchors, models=models, U=U, separation=separation, epsilon=_EPSILON)
        for a, name in enumerate(anchors):
            if name in replies.ok:
                models[a] += U[:, a] @ replies[name]["change"]
    labels = fcluster(linkage(models, "single"), separation / 2.0, "distance") - 1 if len(anchors) > 1 else np.zeros(1)
    groups = np.bincount(labels.astype(np.intp))
    largest = np.argsort(-groups, kind="stable")[:k]
    centres = np.tile(start, (k, 1))
    for j, group in enumerate(largest):
        centres[j] = models[labels == group].mean(axis=0)
    return Start(centres, len(groups) == k, float("nan"), anchors, models)
