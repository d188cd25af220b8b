"""Byz-AltGDmin: the representation that many regressions share, when some sites are malicious.

Algorithms 2 and 3 of A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024.
As AltGDmin (see `altgdmin`), with every mean over the sites replaced. A median gives the truncation threshold, and a
subspace median (of means) the start. An aggregator behind a norm threshold gives the gradient.

What holds: with a part a < 1/2 of the sites malicious, a geometric median is within ``2 (1 - a) / (1 - 2 a)`` times the
spread of the honest gradients. The paper's theorems allow less than 40 %. That is small where sites have rows of all
tasks, and large near one half. Sites that repeat one honest site's reply then take over, and U is that of one site.
`MajorityMean` is within 4 times the spread at any part below one half, and counts copies by their number. Where sites
have tasks of their own, colluding sites near one half can reverse the descent. Therefore the sites vote in the end. If
more than half of those that reply report that the start fits their rows better, the protocol returns the start.

Single replies are needed. Up per site: n r numbers once for the start ((n + q) r in each of its iterations with median
of means). Then n r + r^2 + 3 in each iteration, one bit in the vote, and 2 r^2 + 3 in the end. The only reports that
the coordinator can't compare with others are the rows that a site has of its tasks; nothing is weighted by them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregate, Aggregator, GeometricMedian
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.copied_values import first_of_copies
from fedspan.aggregation.fewer_values import for_fewer_values
from fedspan.aggregation.safe_arithmetic import distances, lower_median, norms, shrunk
from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Flag, Matrix, Stack
from fedspan.few_shot.altgdmin import Descent, GradientRound, Representation, Watch, local_gradient
from fedspan.few_shot.parts.fit_moments import bounded, chosen_directions, fit_moments, largest_rank, per_row
from fedspan.few_shot.parts.task_rows import TaskRows
from fedspan.few_shot.parts.tasks import Tasks, agree_on_tasks, check_rank, eligible_sites, known_sites, warn
from fedspan.few_shot.parts.truncated_start import Init, StartPlan, fitting_start, median_start
from fedspan.linalg.medians.majority_ball import SECOND_GROUP, resilience, two_groups
from fedspan.linalg.medians.projector_median import Output

#: Losses that differ by less than this part of the targets' square are equal.
_ROUNDING = 1e-12
_FARTHEST = 1e100  # in units of the median length of a gradient
_LONG = 10.0  # times that length: a gradient that belongs to no group


@step("few_shot.preference", reveals="sums")
def local_preference(site: Site, start: Matrix, final: Matrix, intercept: bool) -> dict[str, Any]:
    """Leaves the site: whether its rows have smaller squared residuals under `start` than under `final`."""
    y = TaskRows.of(site).y
    before, after = (local_gradient(site, U, intercept)["loss"] for U in (start, final))
    return {"start": bool(after - before > _ROUNDING * float(np.vdot(y, y)))}


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
    watch: Watch = lambda U: None,
) -> Representation:
    """Learn the representation of the honest sites' tasks. Other parameters are those of `altgdmin`.

    Parameters
    ----------
    aggregator : Aggregator, optional
        Combines the gradients. Default: `GeometricMedian`; the paper's other choice is ``MedianOfMeans(groups)``. Near
        one half of malicious sites `MajorityMean` is mostly better. It must be defined for all sites that can learn.
        Where some drop out, the nearest rule that is defined for the others takes its place (see
        `fedspan.aggregation.fewer_values`), and the record shows it.
    threshold : float or None
        omega: refuse gradients longer than this many times (at least 1) the median length. ``None``: refuse none.
    init : {"auto", "subspace_median", "median_of_means", "random"}
        The start. "subspace_median" is one shot, and needs sites with at least `rank` tasks each; "median_of_means"
        runs power methods within `groups` of sites; "random" needs no site. "auto": the first if a typical site has
        twice as many tasks as directions are wanted, or as many if these are the tasks of all sites. Otherwise the
        second, with the smallest groups that have that number of tasks. The third if no groups have.
    groups : int, optional
        Of the start by median of means. Default: half the number of sites; fewer than half of the groups may hold a
        malicious site.
    output : {"eigenspace", "node", "trimmed"}
        Of the subspace median; "node" is the paper's.
    """
    rule = aggregator or GeometricMedian()
    if threshold is not None:
        real_number("threshold", threshold, least=1, why=", in units of the median norm")
    tasks = tasks or agree_on_tasks(fed, intercept=intercept, resilient=True)
    fed, parts = known_sites(fed, tasks), 2 * iterations + 1 if sample_split else 1
    most = rank or largest_rank(tasks, max_rank, n_columns, intercept, parts, resilient=True)
    init, groups, columns = fitting_start(tasks, len(fed.sites), init, groups, rank, most)
    check_rank(tasks, columns, n_columns, intercept, parts)
    # Algorithm 2, lines 3 to 6: the threshold. (The median of the batches' means in the paper; this tolerates more.)
    alpha = truncation * float(np.median(list(tasks.power.values())))
    # Algorithm 2, lines 7 to 26.
    payload = {"alpha": alpha, "intercept": intercept, "parts": parts}
    plan = StartPlan(columns, n_columns, tasks, power_iterations, payload)
    start = median_start(fed, plan, init, groups, output)
    if rank is None:
        start = chosen_directions(fed, start, tasks, intercept, parts, max_rank, resilient=True)
    fed.log(start=init, groups=groups, rank=start.shape[1])
    # Algorithm 3, lines 2 to 14.
    workers = eligible_sites(fed, tasks, start.shape[1], intercept, parts)
    rule(np.zeros((len(workers.sites), 1)))  # refuses a rule that does not fit this number of sites
    last: dict[str, Any] = {}
    combined = partial(_aggregated, workers, rule, threshold, last, intercept=intercept)
    descent = Descent(step_size, float(np.median(list(tasks.spread.values()))))
    U, weights, done, moved = descent.run(fed, start, combined, iterations, tol, sample_split, watch)
    mean = {site: weight / max(1, done) for site, weight in weights.items()}
    if done and believed(rule, np.ones(1)) is None:  # a plain mean needs no vote: any site can move it
        U = voted(workers, start=start, final=U, intercept=intercept)
    found = Representation.of(U, mean, fit_moments(workers, U, intercept, resilient=True), done, moved)
    if not last:
        return found
    table, doubtful = _resilience(fed, **last)
    return replace(found, resilience=table, doubtful=doubtful)


def _resilience(
    fed: Federation, sites: tuple[str, ...], gradients: Stack, combined: Matrix
) -> tuple[NDArray[np.void], tuple[str, ...]]:
    """Return how far malicious sites can have moved the last gradient, in units of the median length of one.

    Warn where the sites' gradients are copies of one another, and where the others form two groups. Return the copies,
    too, or all sites where there are two groups: which one is honest is not known.
    """
    first = first_of_copies(gradients)
    doubtful: list[str] = []
    if not first.all():
        copies = np.array(sites)[~first].tolist()
        doubtful += copies
        warn(
            f"{len(copies)} of {len(sites)} sites repeat the gradient of another site and do not count "
            f"({', '.join(copies[:5])}{', ...' if len(copies) > 5 else ''}): gradients of own rows are never equal"
        )
    points = np.vstack([gradients.reshape(len(gradients), -1), combined.reshape(1, -1)])
    lengths = norms(shrunk(points)[0][:-1])
    unit = lower_median(lengths) or 1.0
    with np.errstate(over="ignore"):  # of false replies, which are farther than anything that counts
        apart = np.minimum(distances(points) / unit, _FARTHEST)
    between, all_sites = apart[:-1, :-1], np.arange(len(gradients))
    table = resilience(lambda rows: iter([(rows, between[rows], between[rows])]), apart[-1, :-1], all_sites)
    if len(table):
        m, radius, bound = table[-1].tolist()
        fed.log(malicious_at_most=m, honest_radius=radius, moved_at_most=bound)
    # A few huge replies must not hide two groups among the others, nor copies of one that has come to fit.
    plausible = first & (lengths <= _LONG * np.quantile(lengths[first], 1.0 - SECOND_GROUP, method="lower"))
    second = two_groups(between[np.ix_(plausible, plausible)])
    if second is not None:
        names = np.array(sites)[plausible][second].tolist()
        doubtful = list(sites)
        fed.log(second_group=", ".join(names))
        warn(
            f"the gradients form two groups, and {len(names)} of {len(sites)} sites are in the smaller one "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}): malicious sites agree, or repeat one "
            "reply, or sites differ; compare with MajorityMean()"
        )
    return table, tuple(doubtful)


def _aggregated(
    workers: Federation, rule: Aggregator, threshold: float | None, last: dict[str, Any], *, U: Matrix, **payload: Any
) -> GradientRound:
    """Request the gradients at `U` (n, r), and combine them and the second moments by medians; `last` keeps them."""
    replies = workers.ask(local_gradient, U=U, **payload)
    shapes = {"gradient": U.shape, "moment": (U.shape[1], U.shape[1])}
    replies = workers.accept(replies, lambda reply: per_row(reply, shapes))
    every, replies = replies, _without_copies(replies, rule)
    fitting = for_fewer_values(rule, len(replies))
    gradient, refused = _combined(replies, fitting, threshold)
    last.update(sites=tuple(every), gradients=every.stack("gradient"), combined=gradient.value)
    moment, bounds = _second_moment(replies)
    copies = [site for site in every if site not in replies]
    metrics = {"refused": ", ".join(refused), **({"copies": ", ".join(copies)} if copies else {})}
    if fitting is not rule:
        metrics["rule"] = f"{fitting!r} in place of {rule!r}, for {len(replies)} replies"
    losses = {site: float(reply["loss"]) for site, reply in replies.items()}
    weights = dict.fromkeys(copies, 0.0) | dict(zip(replies, gradient.weights.tolist(), strict=True))
    return GradientRound(gradient.value, moment, losses, weights, bounds, metrics)


def _without_copies(replies: Replies, rule: Aggregator) -> Replies:
    """Return the replies but for copies of others: gradients of a site's own rows are never equal.

    A plain mean keeps them, which any site can move anyway.
    """
    if believed(rule, np.ones(1)) is not None:
        return replies
    first = first_of_copies(replies.stack("gradient"))
    return Replies(
        {site: reply for (site, reply), own in zip(replies.items(), first, strict=True) if own}, replies.failed
    )


def _second_moment(replies: Replies) -> tuple[Matrix, tuple[float, float]]:
    """Return the geometric median of the second moments, whatever the aggregator, and bounds of its largest eigenvalue.

    Where sites differ, malicious sites can move the median, and the step must stay safe. The largest eigenvalue is at
    least the mean one, and at most that of a site with few tasks. Both are medians over the sites.
    """
    moments = bounded(replies.stack("moment"))
    symmetric = (moments + moments.transpose(0, 2, 1)) / 2
    eigenvalues = np.linalg.eigvalsh(symmetric)
    low, high = (float(np.median(values)) for values in (eigenvalues.mean(axis=1), eigenvalues.max(axis=1)))
    return GeometricMedian()(symmetric).value, (low, high)


def _combined(replies: Replies, aggregator: Aggregator, threshold: float | None) -> tuple[Aggregate, list[str]]:
    """Lines 10 and 11: the aggregate of the gradients within the threshold, and the sites of the others.

    The median length is the lower one of two: while fewer than half of the sites are malicious, it is bounded by an
    honest one.
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
        # Too few are left for this rule. Shorten the others, so that an attacker can't abort the run.
        shorter = np.where(beyond, threshold * middle / np.maximum(lengths, middle), 1.0)
        return aggregator(values * shorter[:, None, None], rows), refused
    weights = np.zeros(len(values))
    weights[~beyond] = found.weights
    return replace(found, weights=weights), refused


def voted(fed: Federation, *, start: Matrix, final: Matrix, intercept: bool = False) -> Matrix:
    """Return `final` (n, r), or `start` with a warning, if it fits better at more than half of the sites that reply.

    Every site has one vote and compares on its own rows, with coefficients fitted to each of the two. So malicious
    sites below one half of those that reply can't decide against all others. A median of losses would not do. Losses of
    different rounds do not compare where sites come and go, and a site that reports a false loss moves it.
    """
    replies = fed.ask(local_preference, start=start, final=final, intercept=intercept)
    replies = fed.accept(replies, lambda reply: {"start": Flag().check("start", reply.get("start"))})
    against = sum(reply["start"] for reply in replies.values())
    fed.log(votes_for_start=against, votes=len(replies))
    if 2 * against <= len(replies):
        return final
    warn(
        f"the start fits the rows of {against} of {len(replies)} sites better than what was learned from it, and is "
        "returned: sites are malicious, or differ too much, or the step is too long"
    )
    return start
