"""Federated moment descent: coarse models of all clusters from a few anchor sites, whatever the starting point.

Phase 1 of L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression", NeurIPS 2022. All
sites together find the few directions in which the clusters lie; in those, an anchor's own rows suffice to find its
model. The paper's own version (`moment_descent_paper`) does not work at its own sizes. Four things differ here. The
moment matrix takes all pairs of a site's rows. An anchor solves a least-squares problem in the directions instead of a
step of unknown length and sign. Anchors are the largest sites, and their number grows until every cluster has some.
Their models are clustered without a known separation.

Per product and site, each way: A d (k + 2) numbers for A anchors, which need only be summed. 10 products in the first
iteration, where all anchors share one model, 5 in each that follows. An anchor sends k numbers an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.safe_arithmetic import norms
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Matrix, Stack, Vector
from fedspan.linalg import k_medoids, linkage_gap, orthonormalize
from fedspan.mixed_regression.parts.cluster_start import Start, ask_losses, checked_start, chosen_by_votes, local_size
from fedspan.mixed_regression.parts.moment_products import OVERSAMPLING, local_receive, moment_product
from fedspan.mixed_regression.parts.regression_rows import ridge_solution, row_blocks
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis
from fedspan.wire import Message

CLEAR = 2.0  # linkage gap above which the anchors' models form k clusters: 2.2 and more in the paper's settings
_MISFIT = 4.0  # times the median loss: the cluster of such a site may have no model
_LONG = 10.0  # times the median length: no honest anchor moves farther
_EXTENSIONS = 3


@step("mixed_regression.anchor_descent", reveals="sums", moments=True)
def local_anchor_descent(site: Site, models: Matrix, U: Stack) -> dict[str, Any]:
    """Lines 11 to 13. Leaves the site: k numbers, its model's change in its own directions ``U[:, a]`` (d, k).

    Anchors get all models and directions (d, A, k) without names; each knows its own model. One pseudo-row of average
    size keeps the problem solvable where rows are few.
    """
    a = own_anchor(site, models)
    k = U.shape[2]
    gram, moment = np.zeros((k, k)), np.zeros(k)
    for X, y in row_blocks(site):
        P = X @ U[:, a]
        gram += P.T @ P
        moment += P.T @ (y - X @ models[a])
    change = ridge_solution(gram, moment, len(site))
    site.state["anchor model"] = models[a] + U[:, a] @ change
    return {"change": change}


def own_anchor(site: Site, models: Matrix) -> int:
    """Return the number of an anchor's own model among those of all anchors (A, d)."""
    own = site.state.get("anchor model")
    return 0 if own is None else int(np.argmin(np.linalg.norm(models - own, axis=1)))


def moment_descent(
    fed: Federation,
    *,
    n_clusters: int,
    n_columns: int,
    start: Vector | None = None,
    iterations: int = 3,
    subspace_iterations: int = 10,
    p_min: float | None = None,
    miss: float = 0.001,
    max_anchors: int | None = None,
    perturbation: float = 0.0,
    aggregator: Aggregator | None = None,
) -> Start:
    """Return coarse models (k, d) of the clusters, from any starting point.

    Parameters
    ----------
    start : array (d,), optional
        The starting point of all anchors. Default: 0.
    iterations, subspace_iterations : int
        Descents (the paper has 5); products to find the directions at first, and half as many from then on.
    p_min : float, optional
        The smallest cluster's share of the sites, at most 1 / k, which is the default.
    miss : float
        The probability of missing a cluster with the first ``log(k / miss) / p_min`` anchors.
    max_anchors : int, optional
        Default: four times that number.
    perturbation : float
        Every site gets its own two versions of the anchors' models, with independent Gaussian noise of this length on
        each (Remark 2). One call per site and iteration.
    aggregator : Aggregator, optional
        The rule that combines the sites' products. Anchors are then drawn at random among sites that report at least
        2 k rows or the median number, because reported sizes can't be trusted. The votes of all sites choose among
        their models.
    """
    theta0 = checked_start(fed.sites, n_clusters, n_columns, start)
    whole_number("iterations", iterations, 1)
    whole_number("subspace_iterations", subspace_iterations, 2)
    real_number("miss", miss, above=0, below=1)
    real_number("perturbation", perturbation, least=0)
    share = check_share(p_min, n_clusters)
    if n_clusters == 1:
        return Start(theta0[None])
    fed.need_single_replies("moment descent")
    options = (theta0, n_clusters, iterations, subspace_iterations, perturbation, aggregator)
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
        if aggregator is None:  # otherwise malicious sites could become anchors by reporting that no model fits
            pool = [name for name in pool if name in misfits] + [name for name in pool if name not in misfits]
    return found


def check_share(p_min: float | None, n_clusters: int) -> float:
    """Return the smallest cluster's share of the sites, by default that of equal clusters, or refuse it."""
    if p_min is None:
        return 1.0 / n_clusters
    return real_number("p_min", p_min, above=0, most=(1.0 + 1e-9) / n_clusters, why=", the smallest cluster's share")


def _candidates(fed: Federation, k: int, aggregator: Aggregator | None) -> list[str]:
    """Return the sites in the order in which they may become anchors."""
    sizes = {name: int(reply["n"]) for name, reply in fed.ask(local_size).ok.items()}
    order = [list(sizes)[i] for i in fed.rng.permutation(len(sizes))]
    if aggregator is None:
        return sorted(order, key=lambda name: -sizes[name])
    least = min(2 * k, int(np.median(list(sizes.values()))))
    return [name for name in order if sizes[name] >= least]


def _descended(
    fed: Federation,
    names: Sequence[str],
    theta0: Vector,
    k: int,
    iterations: int,
    subspace_iterations: int,
    perturbation: float,
    aggregator: Aggregator | None,
) -> Matrix:
    """Lines 4 to 15: return the models (A, d) of the anchors `names`."""
    d = len(theta0)
    rank = min(k, d)
    columns = min(rank + OVERSAMPLING, d)
    models = np.tile(theta0, (len(names), 1))
    Q = random_basis(fed.rng, d, columns)[:, None]
    for t in range(iterations):
        at = models[:1] if t == 0 else models  # at first all anchors share one model
        there = fed.subset(_send_perturbed(fed, at, perturbation)) if perturbation else fed
        product = moment_product(at, aggregator, perturbed=bool(perturbation))
        count = subspace_iterations if t == 0 else max(2, subspace_iterations // 2)
        U, _ = orthogonal_iteration(there, product=product, start=Q, iterations=count, rank=rank)
        U = np.repeat(U, len(names), axis=1) if t == 0 else U
        replies = fed.ask(local_anchor_descent, names, models=models, U=U)
        if aggregator is not None:
            replies = _without_long(fed, replies)
        for a, name in enumerate(names):
            if name in replies.ok:  # otherwise its model stays
                models[a] += U[:, a] @ replies[name]["change"]
        extra = fed.rng.standard_normal((d, columns - rank))
        Q = np.stack([orthonormalize(np.hstack([U[:, a], extra]), complete=True) for a in range(len(names))], axis=1)
    return models


def _send_perturbed(fed: Federation, models: Matrix, length: float) -> list[str]:
    """Send every site its own two versions of the models; return the sites that have them, for the products."""
    scale = length / np.sqrt(models.shape[1])
    received: list[str] = []
    for name in fed.sites:
        first, second = models + scale * fed.rng.standard_normal((2, *models.shape))
        try:
            fed.ask(local_receive, [name], first=first, second=second)
            received.append(name)
        except QuorumError as error:
            silent = error
    if 2 * len(received) <= len(fed.sites):
        raise silent
    return received


def _without_long(fed: Federation, replies: Replies) -> Replies:
    """Refuse anchors that move much farther than most: their models go to all sites."""
    most = _LONG * float(np.median(norms(replies.stack("change"))))

    def check(reply: Message) -> Message:
        if not float(norms(reply["change"][None])[0]) <= most:
            raise InputError(f"this anchor moves more than {_LONG:g} times as far as most")
        return reply

    return fed.accept(replies, check)


def _clustered(
    fed: Federation, models: Matrix, anchors: tuple[str, ...], k: int, aggregator: Aggregator | None
) -> tuple[Start, set[str]]:
    """Line 16 without a known separation: clusters of the anchors' models, and the sites that no model fits.

    Only a clear gap shows that all clusters are covered. Few misfits do not: coarse models fit badly anyhow. Where
    anchors may be malicious there is never a gap, and the misfits decide.
    """
    if len(models) < k:
        raise InputError(f"only {len(models)} sites can be anchors: n_clusters={k} needs at least as many")
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
