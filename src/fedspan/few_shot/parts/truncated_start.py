"""The start of AltGDmin: leading left singular vectors of Theta_0, by sums, or by medians where sites may lie.

A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024: lines 5 to 9 of
Algorithm 1, and Algorithm 2. In the latter, lines 22 to 24 are read with the index range [L~] and the last iterate, and
line 16 without its sum over k.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.few_shot.parts.tasks import Tasks
from fedspan.few_shot.parts.truncated_moments import local_basis, local_loadings, local_own_product, local_product
from fedspan.linalg import orthonormalize
from fedspan.linalg.medians.projector_median import Output
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.subspace_median import checked_basis, median_of_bases
from fedspan.wire import Message

Matrix = NDArray[np.float64]
Init = Literal["auto", "subspace_median", "median_of_means", "random"]
#: ``total(step, **payload)``: the sum of what some sites reply, key by key.
Total = Callable[..., Mapping[str, Any]]

#: Tasks that a site, or a group of sites, should have for each direction that it is asked for.
TASKS_PER_DIRECTION = 2


@dataclass(frozen=True)
class StartPlan:
    """What both starts are told.

    Attributes
    ----------
    columns : int
        How many directions are wanted.
    alpha : float
        Targets above its root are truncated.
    parts : int
        The rows are cut into so many parts, of which the first is used; 1: all rows.
    """

    columns: int
    n_columns: int
    tasks: Tasks
    alpha: float
    intercept: bool
    parts: int
    power_iterations: int

    @property
    def payload(self) -> dict[str, Any]:
        """What every step is told."""
        return {"alpha": self.alpha, "intercept": self.intercept, "parts": self.parts}


def summed_start(federation: Federation, plan: StartPlan) -> Matrix:
    """Lines 5 to 9 of Algorithm 1: the power method on the Theta_0 of all rows. Only sums are needed."""
    U = random_basis(federation.rng, plan.n_columns, plan.columns)
    for _ in federation.rounds(plan.power_iterations):
        U = _power_step(federation.sum, U, plan)
    return U


def median_start(federation: Federation, plan: StartPlan, init: Init, groups: int, output: Output) -> Matrix:
    """Algorithm 2: a start that liars cannot spoil while they are fewer than half of those whose directions count.

    By the subspace median these are the sites with at least as many tasks as directions are wanted: others are not
    asked, and more than half of those that are must be honest. By median of means they are the groups: one bad site
    spoils its group, so as many bad sites as half of the groups can be too many. A random start asks nobody.
    """
    if init == "random":
        return random_basis(federation.rng, plan.n_columns, plan.columns)
    if init == "subspace_median":
        return _median_of_sites(federation, plan, output)
    return _median_of_groups(federation, plan, groups, output)


def fitting_start(
    tasks: Tasks, n_sites: int, init: Init, groups: int | None, rank: int | None, max_rank: int
) -> tuple[Init, int, int]:
    """Return the start that fits the number of tasks that sites have, its number of groups, and how many directions.

    Where the rank is not given: as many as twice so many tasks could tell, at most `max_rank`.
    """
    L, q, at_a_site = n_sites, len(tasks.labels), max(1, int(tasks.typical(len)))
    if groups is not None and not 1 <= groups <= L:
        raise InputError(f"groups={groups} must be between 1 and the number of sites, {L}")
    needed = min(q, TASKS_PER_DIRECTION * (min(4, max_rank) if rank is None else rank))
    if groups is not None and init in ("subspace_median", "random"):
        raise InputError(f"groups={groups} does nothing with init={init!r}: it goes with init='median_of_means'")
    if init == "auto" and groups is not None:
        init = "median_of_means"
    elif init == "auto":
        wide_enough = at_a_site >= needed or (not tasks.own and at_a_site >= (rank or 1))
        init, groups = ("subspace_median", L) if wide_enough else ("median_of_means", L // -(-needed // at_a_site))
        if L < 3:  # nobody can be outvoted
            init, groups = "median_of_means", 1
        elif groups < 3:  # of two groups neither can outvote the other
            init = "random"
    groups = groups or max(min(3, L), L // 2)
    together = at_a_site if init == "subspace_median" or not tasks.own else at_a_site * (L // groups)
    if init == "random" or groups == 1:
        together = TASKS_PER_DIRECTION * q
    most = max(1, min(max_rank, together // TASKS_PER_DIRECTION))
    return init, groups, most if rank is None else rank


def _median_of_sites(federation: Federation, plan: StartPlan, output: Output) -> Matrix:
    """Subspace median of the sites' own leading directions: one shot. Sites with too few tasks are not asked."""
    few = {site for site, (_, rows) in plan.tasks.held.items() if len(rows) < plan.columns}
    if len(few) == len(plan.tasks.held):
        raise InputError(
            f"no site has {plan.columns} tasks, as many as directions are wanted: use init='median_of_means'"
        )
    asked = federation.subset(site for site in federation.sites if site not in few)
    replies = asked.ask(local_basis, rank=plan.columns, **plan.payload)
    replies = asked.accept(replies, lambda reply: checked_basis(reply, plan.n_columns, plan.columns))
    return median_of_bases(replies.stack("basis"), tuple(replies), output).basis


def _median_of_groups(federation: Federation, plan: StartPlan, groups: int, output: Output) -> Matrix:
    """Lines 8 to 26 of Algorithm 2: power methods within groups of sites, then the subspace median of the groups."""
    members = [tuple(part.tolist()) for part in np.array_split(np.array(federation.sites), groups)]
    start = random_basis(federation.rng, plan.n_columns, plan.columns)
    found: dict[int, Matrix] = {}
    for _ in federation.rounds(plan.power_iterations):
        for group, names in enumerate(members):
            try:
                found[group] = _power_step(_total_of(federation, names, plan), found.get(group, start), plan)
            except (QuorumError, InputError):  # the group stays where it is, and may go on in the next iteration
                continue
    if 2 * len(found) <= groups:
        silent = {name: "no subspace" for group, names in enumerate(members) if group not in found for name in names}
        raise QuorumError(f"only {len(found)} of {groups} groups gave a subspace, and most of them must", silent)
    return median_of_bases(np.stack([found[g] for g in sorted(found)]), tuple(map(str, sorted(found))), output).basis


def _total_of(federation: Federation, names: tuple[str, ...], plan: StartPlan) -> Total:
    """Return the sum over a group's sites: single replies are needed, because whoever spoils one spoils his group."""

    def total(step: Callable[..., Any], **payload: Any) -> Mapping[str, Any]:
        key, rows = ("loadings", len(plan.tasks.labels)) if step is local_loadings else ("product", plan.n_columns)

        def check(reply: Message) -> Message:
            value = np.asarray(reply.get(key))
            if value.shape != (rows, plan.columns) or value.dtype.kind not in "iuf":
                raise InputError(
                    f"{key!r} must be a matrix {(rows, plan.columns)} of real numbers, not {value.dtype}{value.shape}"
                )
            return {key: value}

        replies = federation.accept(federation.ask(step, names, **payload), check)
        with np.errstate(over="ignore"):  # of lies, which orthonormalize refuses
            return {key: replies.stack(key).sum(axis=0)}

    return total


def _power_step(total: Total, U: Matrix, plan: StartPlan) -> Matrix:
    """One iteration ``U <- QR(Theta_0 Theta_0' U)``."""
    if plan.tasks.whole:  # no column of Theta_0 is spread over sites: one exchange is enough
        return orthonormalize(total(local_own_product, U=U, **plan.payload)["product"], complete=True)
    V = total(local_loadings, U=U, tasks=plan.tasks.labels, **plan.payload)["loadings"]
    if not np.isfinite(V).all():
        raise InputError("the loadings of a group overflow")
    product = total(local_product, V=V, tasks=plan.tasks.labels, **plan.payload)["product"]
    return orthonormalize(product, complete=True)
