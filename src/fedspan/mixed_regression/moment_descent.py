"""Federated moment descent: coarse models of all clusters from a few anchor sites, whatever the starting point.

Phase 1 of L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression", NeurIPS 2022. All
sites together find the few directions in which the clusters lie; in those, an anchor's own rows are enough to find its
model. What differs from the paper, because what is written there does not work at its own sizes (see
`moment_descent_paper`): the moment matrix takes all pairs of a site's rows; an anchor solves a least-squares problem in
the directions instead of a step of unknown length and sign; anchors are the largest sites, and more of them are
taken until every cluster has some; and their models are clustered without knowing how far clusters are apart.

Per product and site, each way: A d (k + 2) numbers for A anchors, which need only be summed; 10 products in the first
iteration, where all anchors share one model, 5 in each that follows. An anchor sends k numbers an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.safe_arithmetic import norms
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.linalg import k_medoids, linkage_gap, orthonormalize
from fedspan.mixed_regression.moment_descent_paper import moment_descent_paper
from fedspan.mixed_regression.parts.cluster_start import (
    Start,
    ask_losses,
    check_clusters,
    chosen_by_votes,
    local_size,
    starting_point,
)
from fedspan.mixed_regression.parts.moment_products import local_receive, moment_product
from fedspan.mixed_regression.parts.regression_rows import row_blocks
from fedspan.pca.parts.orthogonal_iteration import Matrix, orthogonal_iteration, random_basis
from fedspan.wire import Message

VARIANTS = ("all_pairs", "paper")
CLEAR = 2.0  # linkage gap above which the anchors' models form k clusters: 2.2 and more in the paper's settings
_MISFIT = 4.0  # times the median loss: such a site's cluster has perhaps no model
_LONG = 10.0  # times the median length: no honest anchor moves so far
_EXTENSIONS = 3


@step("mixed_regression.anchor_descent", reveals="sums")
def local_anchor_descent(site: Site, models: Matrix, U: NDArray[np.float64]) -> dict[str, Any]:
    """Lines 11 to 13. Leaves the site: k numbers, its model's change in its own directions ``U[:, a]`` (d, k).

    Anchors get all models and directions (d, A, k) without names; each knows its own model. One pseudo-row of average
    size keeps the problem solvable where rows are few.
    """
    own = site.state.get("anchor model")
    a = 0 if own is None else int(np.argmin(np.linalg.norm(models - own, axis=1)))
    k = U.shape[2]
    gram, moment, n = np.zeros((k, k)), np.zeros(k), len(site)
    for X, y in row_blocks(site):
        P = X @ U[:, a]
        gram += P.T @ P
        moment += P.T @ (y - X @ models[a])
    ridge = float(np.trace(gram)) / (k * max(n, 1))
    change = np.linalg.solve(gram + max(ridge, np.finfo(np.float64).tiny) * np.eye(k), moment)
    site.state["anchor model"] = models[a] + U[:, a] @ change
    return {"change": change}


def moment_descent(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Matrix | None = None,
    variant: str = "all_pairs",
    iterations: int = 3,
    subspace_iterations: int = 10,
    oversampling: int = 2,
    p_min: float | None = None,
    miss: float = 0.001,
    max_anchors: int | None = None,
    perturbation: float = 0.0,
    aggregator: Aggregator | None = None,
    separation: float | None = None,
) -> Start:
    """Return coarse models (k, d) of the clusters, from any starting point.

    Parameters
    ----------
    start : array (d,), optional
        Where all anchors begin. Default: 0.
    variant : "all_pairs" or "paper"
        "paper" is Phase 1 as written; it needs the `separation` Delta of the clusters and takes none of the options
        below but `iterations`.
    iterations, subspace_iterations, oversampling : int
        Descents (the paper has 5); products to find the directions at first, and half as many from then on; columns
        beside the k directions.
    p_min : float, optional
        The smallest cluster's share of the sites, at most 1 / k, which is the default.
    miss : float
        ``log(k / miss) / p_min`` anchors are taken at first: probability of missing a cluster.
    max_anchors : int, optional
        Default: four times as many.
    perturbation : float
        Every site is sent its own two versions of the anchors' models, with independent Gaussian noise of this length
        on each (Remark 2). One call per site and iteration.
    aggregator : Aggregator, optional
        How the sites' products are combined. Then anchors are drawn at random among sites that say they have at least
        2 k rows or as many as most, because reported sizes cannot be believed, and chosen by the votes of all sites.
    """
    check_clusters(n_clusters, len(fed.sites))
    if variant not in VARIANTS:
        raise InputError(f"variant={variant!r} must be one of {', '.join(VARIANTS)}")
    if iterations < 1 or subspace_iterations < 2 or oversampling < 0:
        raise InputError(
            f"{iterations=} must be at least 1, {subspace_iterations=} must be at least 2, {oversampling=} at least 0"
        )
    theta0 = starting_point(start, n_columns)
    if variant == "paper":
        if separation is None or aggregator is not None or perturbation:
            raise InputError("variant='paper' needs separation=..., and takes neither aggregator nor perturbation")
        return moment_descent_paper(
            fed, n_clusters=n_clusters, start=theta0, separation=separation, iterations=iterations
        )
    if separation is not None:
        raise InputError("separation=... is for variant='paper': clusters are told apart without it here")
    share = 1.0 / n_clusters if p_min is None else p_min
    if not 0.0 < share <= 1.0 or not 0.0 < miss < 1.0 or not perturbation >= 0.0:
        raise InputError(f"{p_min=} must be above 0 and at most 1, {miss=} between 0 and 1, {perturbation=} at least 0")
    if share > 1.0 / n_clusters * (1.0 + 1e-9):
        raise InputError(f"{p_min=} is the smallest cluster's share of the sites: at most 1 / {n_clusters} of them")
    if n_clusters == 1:
        return Start(theta0[None])
    options = (theta0, n_clusters, iterations, subspace_iterations, oversampling, perturbation, aggregator)
    batch = int(np.ceil(np.log(n_clusters / miss) / share))
    pool = _candidates(fed, n_clusters, aggregator)
    most = min(4 * batch if max_anchors is None else max_anchors, len(pool))
    anchors: list[str] = []
    models = np.zeros((0, n_columns))
    for _ in range(1 + _EXTENSIONS):
        new = pool[: max(min(batch, most - len(anchors)), 0)]
        if new:
            models = np.vstack([models, _descended(fed, new, *options)])
            anchors += new
            pool = [name for name in pool if name not in new]
        found, misfits = _clustered(fed, models, tuple(anchors), n_clusters, aggregator)
        fed.log(anchors=len(anchors), gap=found.gap, covered=found.covered)
        many = len(misfits) >= share / 2.0 * len(fed.sites)
        if found.covered or len(anchors) >= most or not many:
            break
        if aggregator is None:  # otherwise liars would become anchors by saying that nothing fits them
            pool = [name for name in pool if name in misfits] + [name for name in pool if name not in misfits]
    return found


def _candidates(fed: Federation, k: int, aggregator: Aggregator | None) -> list[str]:
    """Return the sites in the order in which they may become anchors."""
    replies = fed.ask(local_size)
    sizes = {name: int(reply["n"]) for name, reply in replies.ok.items()}
    order = [list(sizes)[i] for i in fed.rng.permutation(len(sizes))]
    if aggregator is None:
        return sorted(order, key=lambda name: -sizes[name])
    least = min(2 * k, int(np.median(list(sizes.values()))))
    return [name for name in order if sizes[name] >= least]


def _descended(
    fed: Federation,
    names: Sequence[str],
    theta0: Matrix,
    k: int,
    iterations: int,
    subspace_iterations: int,
    oversampling: int,
    perturbation: float,
    aggregator: Aggregator | None,
) -> Matrix:
    """Lines 4 to 15: return the models (A, d) of the anchors `names`."""
    d = len(theta0)
    rank = min(k, d)
    columns = min(rank + oversampling, d)
    models = np.tile(theta0, (len(names), 1))
    Q = random_basis(fed.rng, d, columns)[:, None]
    for t in range(iterations):
        at = models[:1] if t == 0 else models  # in the beginning all anchors have one model
        there = fed.subset(_send_perturbed(fed, at, perturbation)) if perturbation else fed
        product = moment_product(at, aggregator, perturbed=bool(perturbation))
        count = subspace_iterations if t == 0 else max(2, subspace_iterations // 2)
        U, _ = orthogonal_iteration(there, product=product, start=Q, iterations=count, rank=rank)
        U = np.repeat(U, len(names), axis=1) if t == 0 else U
        replies = fed.ask(local_anchor_descent, names, models=models, U=U)
        if aggregator is not None:
            replies = _without_long(fed, replies)
        for a, name in enumerate(names):
            if name in replies.ok:  # otherwise it stays where it is
                models[a] += U[:, a] @ replies[name]["change"]
        extra = fed.rng.standard_normal((d, columns - rank))
        Q = np.stack([orthonormalize(np.hstack([U[:, a], extra]), complete=True) for a in range(len(names))], axis=1)
    return models


def _send_perturbed(fed: Federation, models: Matrix, length: float) -> list[str]:
    """Send every site its own two versions of the models. Return who has them: nobody else is asked for products."""
    scale = length / np.sqrt(models.shape[1])
    received: list[str] = []
    for name in fed.sites:
        first, second = models + scale * fed.rng.standard_normal((2, *models.shape))
        try:
            fed.ask(local_receive, [name], first=first, second=second)
        except QuorumError as error:
            silent = error
            continue
        received.append(name)
    if 2 * len(received) <= len(fed.sites):
        raise silent
    return received


def _without_long(fed: Federation, replies: Replies) -> Replies:
    """Refuse the anchors that want to move much farther than most: their models go to everybody."""
    most = _LONG * float(np.median(norms(replies.stack("change"))))

    def check(reply: Message) -> Message:
        if not float(norms(reply["change"][None])[0]) <= most:
            raise InputError(f"this anchor moves more than {_LONG:g} times as far as most")
        return reply

    return fed.accept(replies, check)


def _clustered(
    fed: Federation,
    models: Matrix,
    anchors: tuple[str, ...],
    k: int,
    aggregator: Aggregator | None,
) -> tuple[Start, set[str]]:
    """Line 16 without a known separation: clusters of the anchors' models, and the sites that none of them fits.

    Without a clear gap nothing shows that all clusters are there, few misfits least of all: coarse models fit badly
    anyhow. Where some anchors may lie there is never a gap, and the misfits decide.
    """
    if len(models) < k:
        raise InputError(f"only {len(models)} sites can be anchors, and n_clusters={k} needs as many at least")
    labels, gap = linkage_gap(models, k)
    clear = gap >= CLEAR and np.bincount(labels, minlength=k).min() > 1
    if clear and aggregator is None:
        centres = np.stack([models[labels == j].mean(axis=0) for j in range(k)])
        return Start(centres, True, gap, anchors, models), set()
    names, losses, counts = ask_losses(fed, models=models)
    chosen = k_medoids(losses, k, counts) if aggregator is None else chosen_by_votes(losses, k)
    best = losses[:, chosen].min(axis=1)
    far = best > _MISFIT * np.median(best)
    covered = aggregator is not None and bool(far.mean() < 1.0 / (2.0 * k))
    return Start(models[chosen], covered, gap, anchors, models), {names[i] for i in np.flatnonzero(far)}
