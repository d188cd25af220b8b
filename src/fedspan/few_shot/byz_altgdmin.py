"""Byz-AltGDmin: the representation that many regressions share, when some sites lie.

Algorithms 2 and 3 of A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024.
As AltGDmin (see `altgdmin`), with every mean over the sites replaced: the truncation threshold by a median, the start
by a subspace median or a subspace median of means, the gradient by an aggregator behind a norm threshold.

What holds: with fewer than half of the sites bad, and less than 40 % in the paper's theorems, no lie moves a median
beyond what honest sites say, so the harm is bounded by how much these differ. It is small where they have rows of all
tasks. Where sites have tasks of their own, colluders near one half can turn the descent round: therefore the sites vote
in the end, and if more than half of those that reply say that the start fits their rows better, it is returned.

Single replies are needed. Up per site: n r numbers once for the start ((n + q) r in each of its iterations with
median of means), then n r + r^2 + 3 in each iteration, one bit in the vote, and 2 r^2 + 3 in the end. All that the
coordinator believes of a site's word alone is how many rows it has of which tasks; nothing is weighted by that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregate, Aggregator, GeometricMedian
from fedspan.aggregation.base import believed
from fedspan.aggregation.fewer_values import for_fewer_values
from fedspan.aggregation.safe_arithmetic import lower_median, norms, shrunk
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies
from fedspan.few_shot.parts.altgdmin_steps import Descent, Representation, local_gradient, split_payload
from fedspan.few_shot.parts.eligible_sites import check_rank, known_sites, learners
from fedspan.few_shot.parts.fit_moments import bounded, fit_moments, told_matrix, told_sums
from fedspan.few_shot.parts.rank_choice import chosen_directions, largest_rank
from fedspan.few_shot.parts.start_vote import voted
from fedspan.few_shot.parts.tasks import Tasks, agree_on_tasks
from fedspan.few_shot.parts.truncated_start import Init, StartPlan, fitting_start, median_start
from fedspan.linalg.medians.projector_median import Output
from fedspan.wire import Message

Matrix = NDArray[np.float64]


def byz_altgdmin(
    fed: Federation,
    *,
    rank: int | None,
    n_columns: int,
    aggregator: Aggregator | None = None,
    threshold: float | None = 10.0,
    init: Init = "auto",
    groups: int | None = None,
    output: Output = "eigenspace",
    step_size: float = 1.0,
    iterations: int = 100,
    tol: float = 1e-8,
    truncation: float = 9.0,
    power_iterations: int = 10,
    max_rank: int = 16,
    intercept: bool = False,
    sample_split: bool = False,
    tasks: Tasks | None = None,
    watch: Callable[[Matrix], None] | None = None,
) -> Representation:
    """Learn the representation of the honest sites' tasks. Other parameters are those of `altgdmin`.

    Parameters
    ----------
    aggregator : Aggregator, optional
        Combines the gradients. Default: `GeometricMedian`; the paper's other choice is ``MedianOfMeans(groups)``. It
        must be defined for all sites that can learn; where some drop out, the nearest rule that is defined for those
        who are left takes its place (see `fedspan.aggregation.fewer_values`), and the record says so.
    threshold : float or None
        omega: a gradient longer than so many times (at least 1) the median length is refused. ``None``: none is.
    init : {"auto", "subspace_median", "median_of_means", "random"}
        The start. "subspace_median" is one shot, and needs sites with at least `rank` tasks each; "median_of_means"
        runs power methods within `groups` of sites; "random" asks nobody. "auto": the first where a typical site has
        twice as many tasks as directions are wanted (or as many, if they are the tasks of all sites), then the second
        with the smallest groups that have so many, then the third.
    groups : int, optional
        Of the start by median of means. Default: half the number of sites; fewer than half of the groups may hold a
        bad site.
    output : {"eigenspace", "node", "trimmed"}
        Of the subspace median; "node" is the paper's.
    """
    aggregator = aggregator or GeometricMedian()
    if threshold is not None and not threshold >= 1.0:
        raise InputError(f"threshold={threshold} must be at least 1, in units of the median norm")
    tasks = tasks or agree_on_tasks(fed, intercept=intercept, resilient=True)
    fed, parts = known_sites(fed, tasks), 2 * iterations + 1 if sample_split else 1
    most = rank
    if most is None:
        most = largest_rank(tasks, max_rank, n_columns, intercept, parts, resilient=True)
    init, groups, columns = fitting_start(tasks, len(fed.sites), init, groups, rank, most)
    check_rank(tasks, columns, n_columns, intercept, parts)
    # Algorithm 2, lines 3 to 6: the threshold. (The median of the batches' means in the paper; this tolerates more.)
    alpha = truncation * float(np.median(list(tasks.power.values())))
    # Algorithm 2, lines 7 to 26.
    plan = StartPlan(columns, n_columns, tasks, alpha, intercept, parts, power_iterations)
    U = median_start(fed, plan, init, groups, output)
    if rank is None:
        U = chosen_directions(fed, U, tasks, intercept, parts, max_rank, resilient=True)
    fed.log(start=init, groups=groups, rank=U.shape[1])
    if watch is not None:
        watch(U)
    # Algorithm 3, lines 2 to 14.
    workers = learners(fed, tasks, U.shape[1], intercept, parts)
    aggregator(np.zeros((len(workers.sites), 1)))  # refuses a rule that does not fit so many sites
    descent = Descent(step_size, float(np.median(list(tasks.spread.values()))))
    weights: dict[str, float] = {}
    start, done, moved = U, 0, np.inf
    for t in fed.rounds(iterations):
        replies = workers.ask(local_gradient, U=U, intercept=intercept, **split_payload(t, iterations, sample_split))
        replies = workers.accept(replies, partial(_per_row, shape=U.shape))
        rule = for_fewer_values(aggregator, len(replies))
        gradient, refused = _combined(replies, rule, threshold)
        moment, bounds = _second_moment(replies)
        losses = {site: float(reply["loss"]) for site, reply in replies.items()}
        descent.watch(losses)
        U, moved = descent.moved(U, gradient.value, moment, bounds)
        done = t + 1
        for site, weight in zip(replies, gradient.weights.tolist(), strict=True):
            weights[site] = weights.get(site, 0.0) + weight
        fed.log(loss=float(np.median(list(losses.values()))), moved=moved, refused=", ".join(refused))
        if rule is not aggregator:
            fed.log(rule=f"{rule!r} in place of {aggregator!r}, for {len(replies)} replies")
        if watch is not None:
            watch(U)
        if moved <= tol:
            fed.stop(f"converged: the subspace moved by {moved:.1e}, at most {tol:g}", converged=True)
    mean = {site: weight / max(1, done) for site, weight in weights.items()}
    if done and believed(aggregator, np.ones(1)) is None:  # who wants a plain mean gets one
        U = voted(workers, start=start, final=U, intercept=intercept)
    found = fit_moments(workers, U, intercept, resilient=True)
    return Representation.of(U, mean, found, done, moved)


def _per_row(reply: Message, shape: tuple[int, int]) -> Message:
    """Return a reply with its sums divided by its rows (the 1 / m~ of the paper and its q at once), or refuse it."""
    rows, free, loss = told_sums(reply)
    gradient, moment = told_matrix(reply, "gradient", shape), told_matrix(reply, "moment", (shape[1], shape[1]))
    return {"gradient": gradient / rows, "moment": moment / rows, "loss": loss / free, "rows": rows}


def _second_moment(replies: Replies) -> tuple[Matrix, tuple[float, float]]:
    """Return the geometric median of the second moments, whatever the aggregator, and bounds of its largest eigenvalue.

    Where sites differ liars can move the median, and the step must stay safe. The largest eigenvalue is at least the
    mean one, and at most that of a site with few tasks: of both the median over the sites.
    """
    moments = bounded(replies.stack("moment"))
    symmetric = (moments + moments.transpose(0, 2, 1)) / 2
    eigenvalues = np.linalg.eigvalsh(symmetric)
    low, high = (float(np.median(values)) for values in (eigenvalues.mean(axis=1), eigenvalues.max(axis=1)))
    return GeometricMedian()(symmetric).value, (low, high)


def _combined(replies: Replies, aggregator: Aggregator, threshold: float | None) -> tuple[Aggregate, list[str]]:
    """Lines 10 and 11: the aggregate of the gradients that are not beyond the threshold, and whose are.

    The median length is the lower one of two: while fewer than half of the sites lie, it is bounded by an honest one.
    """
    values, rows = replies.stack("gradient"), believed(aggregator, replies.stack("rows"))
    lengths = norms(shrunk(values.reshape(len(values), -1))[0])  # up to a common factor, so that none is infinite
    middle = lower_median(lengths)
    if threshold is None or middle == 0.0:
        return aggregator(values, rows), []
    beyond = lengths > threshold * middle
    refused = [site for site, out in zip(replies, beyond, strict=True) if out]
    try:
        found = aggregator(values[~beyond], None if rows is None else rows[~beyond])
    except InputError:
        if not refused:
            raise
        # Too few are left for this rule, and nobody shall stop a run by lying: shorten them instead.
        shorter = np.where(beyond, threshold * middle / np.maximum(lengths, middle), 1.0)
        return aggregator(values * shorter[:, None, None], rows), refused
    weights = np.zeros(len(values))
    weights[~beyond] = found.weights
    return replace(found, weights=weights), refused
