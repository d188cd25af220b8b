"""AltGDmin: the low-dimensional representation that many regressions share, by gradient descent on it alone.

Algorithm 1 of A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024; from
S. Nayer and N. Vaswani, "Fast and sample-efficient federated low rank matrix recovery", IEEE Trans. Inf. Theory 2023.
Model: ``y_k = X_k U b_k + noise`` for tasks k = 1 .. q with one U (n, r). Sites have rows of all tasks, or tasks of
their own, or anything between. Each minimises over the ``b_k`` of its own rows.

Only sums are needed, but for the list of the tasks. Up per site: (n + q) r numbers in each iteration of the start (n r
where no task is at two sites), then n r + r^2 + 3 in each iteration, and 2 r^2 + 3 in the end. The ``b_k`` are not
sent, but the (q, r) numbers of the start are close to them, summed over the sites that have rows of the task, and so is
the second moment of a site that has one task only. One bad site can spoil it: see `byz_altgdmin`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation
from fedspan.few_shot.parts.altgdmin_steps import Descent, Representation, local_gradient, split_payload
from fedspan.few_shot.parts.eligible_sites import check_rank, known_sites, learners
from fedspan.few_shot.parts.fit_moments import fit_moments
from fedspan.few_shot.parts.rank_choice import chosen_directions, largest_rank
from fedspan.few_shot.parts.tasks import Tasks, agree_on_tasks
from fedspan.few_shot.parts.truncated_start import StartPlan, summed_start

Matrix = NDArray[np.float64]


def altgdmin(
    fed: Federation,
    *,
    rank: int | None,
    n_columns: int,
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
    """Learn the representation of all sites' tasks.

    Parameters
    ----------
    rank : int or None
        r. ``None``: as many of `max_rank` directions as the tasks use by more than noise explains.
    n_columns : int
        n.
    step_size : float
        eta, in units of 1 / sigma_1^2, which is estimated from the ``b_k``.
    iterations, tol
        At most so many; fewer, when U moves by less than `tol` (``SD_F / sqrt(r)``).
    truncation : float
        Targets above the root of so many times their mean square do not count for the start. The paper's
        ``9 kappa^2 mu^2`` cannot be known, and 9 is better.
    power_iterations : int
        Of the start.
    intercept : bool
        Give each task a constant of its own.
    sample_split : bool
        Use fresh rows for the start and for both halves of each iteration, as the proofs do. All rows each time is
        far better.
    tasks : Tasks, optional
        What `agree_on_tasks` found, where it is known already.
    watch : callable, optional
        Is told U after the start and after every iteration.
    """
    # Line 3: the rows are cut into 2 T + 1 parts, or all of them are used each time.
    tasks = tasks or agree_on_tasks(fed, intercept=intercept)
    fed, parts = known_sites(fed, tasks), 2 * iterations + 1 if sample_split else 1
    columns = largest_rank(tasks, max_rank, n_columns, intercept, parts) if rank is None else rank
    check_rank(tasks, 1 if rank is None else rank, n_columns, intercept, parts)
    # Lines 5 to 9: the truncation threshold, and the leading left singular vectors of Theta_0.
    counts = np.array([rows.sum() for _, rows in tasks.held.values()], dtype=np.float64)
    alpha = truncation * float(np.average(list(tasks.power.values()), weights=counts))
    U = summed_start(fed, StartPlan(columns, n_columns, tasks, alpha, intercept, parts, power_iterations))
    if rank is None:
        U = chosen_directions(fed, U, tasks, intercept, parts, max_rank, resilient=False)
    fed.log(start="the power method on all rows", rank=U.shape[1])
    if watch is not None:
        watch(U)
    # Lines 11 to 20. Each site minimises over its b_k and sends its part of the gradient.
    workers = learners(fed, tasks, U.shape[1], intercept, parts)
    descent = Descent(step_size, float(np.average(list(tasks.spread.values()), weights=counts)))
    answered: dict[str, int] = {}
    done, moved = 0, np.inf
    for t in fed.rounds(iterations):
        total = workers.sum(local_gradient, U=U, intercept=intercept, **split_payload(t, iterations, sample_split))
        rows, loss, done = max(1, total["rows"]), float(total["loss"]) / max(1, total["free"]), t + 1
        descent.watch({total.sites: loss})
        U, moved = descent.moved(U, total["gradient"] / rows, total["moment"] / rows)
        for site in total.sites:
            answered[site] = answered.get(site, 0) + 1
        fed.log(loss=loss, moved=moved)
        if watch is not None:
            watch(U)
        if moved <= tol:
            fed.stop(f"converged: the subspace moved by {moved:.1e}, at most {tol:g}", converged=True)
    share = max(1, sum(answered.values()))
    weights = {site: count / share for site, count in answered.items()}
    return Representation.of(U, weights, fit_moments(workers, U, intercept, resilient=False), done, moved)
