"""FedX with clustering: every site finds its cluster, takes local steps on that model, and the models are averaged.

Phase 2 of L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression", NeurIPS 2022. The
paper's weights are n_i / N. Those over the rows of a site's own cluster, n_i / N_j, are several times faster and do not
starve small clusters. Per round: down k d numbers; up k (d + 3), which need only be summed, or d + k + 2 where an
aggregator needs single replies. The cost of a site's step does not depend on the number of local steps.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.checks import one_of, real_number, whole_number
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import MOST_PASSES, Matrix, OneOf, Passes, Positive
from fedspan.mixed_regression.exact import exact_round
from fedspan.mixed_regression.parts.cluster_rounds import Shares, Variance, local_rounds, responsibilities
from fedspan.mixed_regression.parts.refinement import Refinement, refine_accelerated
from fedspan.mixed_regression.parts.regression_rows import local_operator, once_descended, rows_of

UPDATES = ("fedavg", "fedprox", "exact")
Update = Annotated[str, OneOf(UPDATES[:2])]
_GAMMA = 0.9  # of the stability limit of the least stable site


@step("mixed_regression.curvature", reveals="sums", moments=True)
def local_curvature(site: Site) -> dict[str, Any]:
    """Leaves the site: the largest eigenvalue of its ``X'X / n``."""
    return {"largest": rows_of(site).largest}


@step("mixed_regression.refinement", reveals="sums", moments=True)
def local_refinement(
    site: Site,
    models: Matrix,
    update: Update,
    rate: Positive,
    local_steps: Passes,
    shares: Shares,
    variance: Variance,
    once: bool = False,
) -> dict[str, Any]:
    """Lines 6 and 7. Leaves the site, in the row of its cluster (k, d + 3): n times the model's change, n, 1, its loss.

    Zeros in the rows of other clusters; with a `variance` all rows have their probabilities as a factor. `once`: take
    gradient steps of this round one by one where that is cheaper, and prepare nothing for later rounds.
    """
    k, d = models.shape
    sums = np.zeros((k, d + 3))  # one array: a round of a thousand sites costs by the number of arrays
    if once and update == "fedavg" and variance is None:
        found = once_descended(site, models, rate, local_steps)
        if found is not None:
            label, sums[found[0], :d], loss = found
            sums[label, d:] = len(site), 1.0, loss
            return {"sums": sums}
    rows = rows_of(site)
    E, losses = rows.losses(models)
    if variance is None:
        label = int(losses.argmin())
        sums[label, :d] = E[label].dot(local_operator(site, update, rate, local_steps))
        sums[label, d:] = rows.n, 1.0, losses[label]
    else:
        part = responsibilities(losses, shares, variance)
        sums[:, :d] = part[:, None] * E.dot(local_operator(site, update, rate, local_steps))
        sums[:, d:] = part[:, None] * np.stack([np.full(k, float(rows.n)), np.ones(k), losses], axis=1)
    return {"sums": sums}


@step("mixed_regression.change", reveals="sums", moments=True)
def local_change(
    site: Site, models: Matrix, update: Update, rate: Positive, local_steps: Passes, shares: Shares, variance: Variance
) -> dict[str, Any]:
    """Lines 6, 7. Leaves the site: its part in each cluster (k,), its model's change (d,) or all (k, d), n, its loss.

    All changes with soft assignment, one change without it.
    """
    rows, nZ = rows_of(site), local_operator(site, update, rate, local_steps)
    E, losses = rows.losses(models)
    part = responsibilities(losses, shares, variance)
    change = (E[int(part.argmax())] if variance is None else E).dot(nZ) / rows.n
    return {"part": part, "change": change, "n": rows.n, "loss": float(part @ losses)}


def fedx(
    fed: Federation,
    *,
    models: Matrix,
    update: str = "fedavg",
    local_steps: int = 5,
    rate: float | None = None,
    aggregator: Aggregator | None = None,
    **options: Any,
) -> Refinement:
    """Refine `models` (k, d) from a start near enough.

    Parameters
    ----------
    update : "fedavg", "fedprox" or "exact"
        `local_steps` gradient steps of size `rate`; a proximal step of size `rate` (default 1); or the least-squares
        solution of the cluster, from sums of Gram matrices: d (d + 1) / 2 + d numbers up per site and round.
    rate : float, optional
        Default of "fedavg": 0.9 over the largest local eigenvalue, at most 1 / local_steps. One call more. With an
        aggregator the median of the local eigenvalues counts, because one malicious site could shrink the step.
    aggregator : Aggregator, optional
        The rule that combines the changes of a cluster's sites. Single replies are then needed.
    weights : "cluster" (default) or "total"
        n_i / N_j or, as in the paper, n_i / N.
    assignment : "hard" (default) or "soft"
        To the cluster of the smallest squared error, or to all of them by their probability.
    max_rounds : int, default=400
    tol : float, default=0
        Stop when clusters stay and no model moves by more than this share of the longest one. 0: never.
    acceleration : int, default=0
        Memory of Anderson's extrapolation at the coordinator, which needs no further messages; 0: none.
    origin : array (d,), optional
        Lengths of models are those of their difference from it. Default: 0. With an intercept, give the targets' mean.
    """
    one_of("update", update, UPDATES)
    check_steps(local_steps, rate)
    step_size = 1.0 if update == "exact" else rate or default_rate(fed, update, local_steps, aggregator)
    steps = {"update": update, "rate": float(step_size), "local_steps": int(local_steps)}
    # Steps one by one cost less than what a site prepares for all rounds: without `rate`, it has prepared most already.
    first = {"once": True} if rate is not None else {}
    one_round = local_rounds(fed, local_refinement, local_change, steps, aggregator, first)
    if update == "exact":
        solved: dict[int, tuple[str, ...]] | None = None if options.get("weights") == "total" else {}
        one_round = partial(exact_round, fed, aggregator=aggregator, solved=solved)
    return refine_accelerated(one_round, fed, models, aggregator, **options)


def check_steps(local_steps: int, rate: float | None) -> None:
    """Refuse local steps that no site can take."""
    whole_number("local_steps", local_steps, 1, MOST_PASSES)
    if rate is not None:
        real_number("rate", rate, above=0)


def default_rate(federation: Federation, update: str, local_steps: int, aggregator: Aggregator | None) -> float:
    """Return the step size with which no site's local steps overshoot; see `fedx`."""
    if update == "fedprox":
        return 1.0
    federation.need_single_replies("the default step size (without one, set rate=...)")
    largest = federation.ask(local_curvature).stack("largest").astype(np.float64)
    typical = float(largest.max() if aggregator is None else np.median(largest))
    return min(_GAMMA / typical, 1.0 / local_steps) if typical > 0.0 else 1.0 / local_steps
