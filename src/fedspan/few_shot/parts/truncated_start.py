"""The start of AltGDmin: leading left singular vectors of Theta_0, by sums, or by medians where sites may be malicious.

A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024: lines 5 to 9 of
Algorithm 1, and Algorithm 2. In the latter, lines 22 to 24 are read with the index range [L~] and the last iterate, and
line 16 without its sum over k.

``Theta_0 = sum_k X_k' trunc(y_k) e_k'`` (n, q): column k points towards the coefficients of task k. Without the 1/m of
the papers, which does not change what it spans: so every row counts alike, also where tasks differ in size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Matrix, NotNegative
from fedspan.few_shot.parts.task_rows import TaskLabels, TaskRows, positions, rows_of_smallest_task
from fedspan.few_shot.parts.tasks import Tasks, reported_array
from fedspan.linalg import orthonormalize
from fedspan.linalg.medians.projector_median import Output
from fedspan.pca.parts.orthogonal_iteration import random_basis
from fedspan.pca.subspace_median import checked_basis, median_of_bases

Init = Literal["auto", "subspace_median", "median_of_means", "random"]
#: ``total(step, **payload)``: the sum of some sites' replies, key by key.
Total = Callable[..., Mapping[str, Any]]

#: Tasks that a site, or a group of sites, should have for each direction that is requested of it.
TASKS_PER_DIRECTION = 2


def _kept(y: Matrix, alpha: float, intercept: bool) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return targets (k, m), about their task's mean with an `intercept`, and which are not truncated to 0."""
    y = y - y.mean(axis=1, keepdims=True) if intercept else y
    return y, np.abs(y) <= np.sqrt(alpha)


def _rows_kept(site: Site, *, alpha: float, intercept: bool, parts: int, **_: Any) -> int:
    """Return the fewest rows of a task, in the first of `parts` parts, whose targets are truncated to 0, or are not.

    The difference of the sums for two bounds is about the rows between them.
    """
    fewest = rows_of_smallest_task(site, parts=parts)
    for block in TaskRows.of(site).blocks():
        kept = _kept(block.y[:, ::parts], alpha, intercept)[1]
        counts = np.concatenate([kept.sum(axis=1), (~kept).sum(axis=1)])
        fewest = min(fewest, int(counts.min(initial=fewest, where=counts > 0)))
    return fewest


def theta(site: Site, alpha: float, intercept: bool, parts: int) -> Matrix:
    """Return the transpose of the site's Theta_0 (q, n), from the first of `parts` parts of the rows.

    Targets beyond ``sqrt(alpha)`` are truncated to 0. Memory: n q; the site keeps the last one.
    """

    def make() -> Matrix:
        tasks = TaskRows.of(site)
        Theta = np.zeros((len(tasks), tasks.X.shape[1]))
        for block in tasks.blocks():
            y, kept = _kept(block.y[:, ::parts], alpha, intercept)
            y = np.where(kept, y, 0.0)
            if intercept:  # as good as subtracting the means of the rows of X
                y = y - y.mean(axis=1, keepdims=True)
            Theta[block.tasks] = (y[:, None, :] @ block.X[:, ::parts])[:, 0]
        return Theta

    return site.last_of("theta", (alpha, intercept, parts), make)


@step("few_shot.start_basis", reveals="sums", fewest=_rows_kept)
def local_basis(site: Site, rank: Count, alpha: NotNegative, intercept: bool, parts: Count) -> dict[str, Any]:
    """Leaves the site: the `rank` leading left singular vectors of its Theta_0 (n, rank)."""
    Theta = theta(site, alpha, intercept, parts)
    q, n = Theta.shape
    if q < rank:
        raise InputError(f"this site has {q} tasks, and needs at least {rank} for as many directions")
    if n <= q:  # the smaller Gram matrix
        vectors = eigh(Theta.T @ Theta, subset_by_index=[n - rank, n - 1])[1]
    else:
        vectors = Theta.T @ eigh(Theta @ Theta.T, subset_by_index=[q - rank, q - 1])[1]
    return {"basis": orthonormalize(vectors[:, ::-1], complete=True)}


@step("few_shot.start_loadings", reveals="sums", fewest=_rows_kept)
def local_loadings(
    site: Site, U: Matrix, tasks: TaskLabels, alpha: NotNegative, intercept: bool, parts: Count
) -> dict[str, Any]:
    """Leaves the site: ``V = Theta_0' U`` (q, r), zero for tasks that it does not have."""
    V = np.zeros((len(tasks), U.shape[1]))
    at, known = positions(TaskRows.of(site).labels, tasks)
    V[at[known]] = (theta(site, alpha, intercept, parts) @ U)[known]
    return {"loadings": V}


@step("few_shot.start_product", reveals="sums", fewest=_rows_kept)
def local_product(
    site: Site, V: Matrix, tasks: TaskLabels, alpha: NotNegative, intercept: bool, parts: Count
) -> dict[str, Any]:
    """Leaves the site: ``Theta_0 V`` (n, r)."""
    at, known = positions(TaskRows.of(site).labels, tasks)
    return {"product": theta(site, alpha, intercept, parts)[known].T @ V[at[known]]}


@step("few_shot.start_own_product", reveals="sums", fewest=_rows_kept)
def local_own_product(site: Site, U: Matrix, alpha: NotNegative, intercept: bool, parts: Count) -> dict[str, Any]:
    """Leaves the site: ``Theta_0 Theta_0' U`` (n, r), where no task has rows at another site."""
    Theta = theta(site, alpha, intercept, parts)
    return {"product": Theta.T @ (Theta @ U)}


@dataclass(frozen=True)
class StartPlan:
    """The plan of both starts: `columns` directions are wanted, and `payload` goes to every step.

    That is ``alpha`` (targets above its root are truncated), ``intercept``, and ``parts`` (the sites use the first of
    this number of parts of their rows).
    """

    columns: int
    n_columns: int
    tasks: Tasks
    power_iterations: int
    payload: dict[str, Any]


def summed_start(federation: Federation, plan: StartPlan) -> Matrix:
    """Lines 5 to 9 of Algorithm 1: the power method on the Theta_0 of all rows. Only sums are needed."""
    U = random_basis(federation.rng, plan.n_columns, plan.columns)
    for _ in federation.rounds(plan.power_iterations):
        U = _power_step(federation.sum, U, plan)
    return U


def median_start(federation: Federation, plan: StartPlan, init: Init, groups: int, output: Output) -> Matrix:
    """Algorithm 2: a start that malicious sites can't spoil while they are fewer than half of the voters.

    By the subspace median the voters are the sites with at least as many tasks as directions are wanted. By median of
    means they are the groups, and one malicious site spoils its group. A random start needs no site.
    """
    if init == "random":
        return random_basis(federation.rng, plan.n_columns, plan.columns)
    if init == "subspace_median":
        return _median_of_sites(federation, plan, output)
    return _median_of_groups(federation, plan, groups, output)


def fitting_start(
    tasks: Tasks, n_sites: int, init: Init, groups: int | None, rank: int | None, max_rank: int
) -> tuple[Init, int, int]:
    """Return the start that fits the number of tasks at a site, its number of groups, and the number of directions.

    Without a rank that is one direction for every `TASKS_PER_DIRECTION` tasks of a voter, at most `max_rank`.
    """
    L, q = n_sites, len(tasks.labels)
    at_a_site = max(1, int(np.median([len(rows) for _, rows in tasks.held.values()])))
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
        if L < 3:  # no site can be outvoted
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
    """Subspace median of the sites' own leading directions: one shot. Sites with too few tasks do not vote."""
    few = {site for site, (_, rows) in plan.tasks.held.items() if len(rows) < plan.columns}
    if len(few) == len(plan.tasks.held):
        raise InputError(f"no site has {plan.columns} tasks, one for each direction: use init='median_of_means'")
    voters = federation.subset(site for site in federation.sites if site not in few)
    replies = voters.ask(local_basis, rank=plan.columns, **plan.payload)
    replies = voters.accept(replies, lambda reply: checked_basis(reply, plan.n_columns, plan.columns))
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
            except (QuorumError, InputError):  # the group stays where it is, and may continue in the next iteration
                continue
    if 2 * len(found) <= groups:
        silent = {name: "no subspace" for group, names in enumerate(members) if group not in found for name in names}
        raise QuorumError(f"only {len(found)} of {groups} groups found a subspace, and more than half must", silent)
    return median_of_bases(np.stack([found[g] for g in sorted(found)]), tuple(map(str, sorted(found))), output).basis


def _total_of(federation: Federation, names: tuple[str, ...], plan: StartPlan) -> Total:
    """Return the sum over a group's sites, from single replies: an invalid reply must not stop the group."""

    def total(step: Callable[..., Any], **payload: Any) -> Mapping[str, Any]:
        key, rows = ("loadings", len(plan.tasks.labels)) if step is local_loadings else ("product", plan.n_columns)
        shape = (rows, plan.columns)
        replies = federation.ask(step, names, **payload)
        replies = federation.accept(replies, lambda reply: {key: reported_array(reply, key, shape)})
        with np.errstate(over="ignore"):  # of false reports, which orthonormalize refuses
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
