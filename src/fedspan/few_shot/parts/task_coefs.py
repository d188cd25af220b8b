"""The coefficients of every task, once the representation is learned: one round.

By sums: the normal equations of all rows of a task, so that its coefficients are those of its pooled rows. By medians:
the geometric median of the sites' own coefficients. A site counts for those tasks only that it named at the outset. So
a task's coefficients are safe while more than half of the sites *that name it* are honest. Colluding sites may name the
tasks of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Indices, Matrix, NotNegative, Stack, Vector, Whole
from fedspan.few_shot.parts import task_rows
from fedspan.few_shot.parts import tasks as reports
from fedspan.few_shot.parts.task_rows import Labels, TaskLabels, TaskRows, fitted, positions
from fedspan.few_shot.parts.tasks import MOST_ROWS, Tasks, agree_on_tasks
from fedspan.linalg import geometric_median
from fedspan.wire import Message

#: Eigenvalues of normal equations below this part of the largest count as zero.
_SINGULAR = 1e-12


@dataclass(frozen=True)
class TaskCoefs:
    """Coefficients in the representation, task by task.

    Attributes
    ----------
    tasks : array (q,)
    loadings : array (q, r)
        ``b_k``: of least norm where a task's rows do not decide.
    intercepts : array (q,)
    errors : array (q,)
        Root mean squared residual of each task's rows, per degree of freedom; NaN without any, or where the
        coordinator does not know it.
    """

    tasks: Labels
    loadings: Matrix
    intercepts: Vector
    errors: Vector


@step("few_shot.task_totals", reveals="sums")
def local_totals(site: Site, U: Matrix) -> dict[str, Any]:
    """Leaves the site: the sums of ``T = X U`` (r) and y over all its rows, and their number."""
    own = TaskRows.of(site)
    means = np.append(own.X.mean(axis=0, dtype=np.float64) @ U, own.y.mean())
    return {"totals": len(own.y) * means, "rows": len(own.y)}


@step("few_shot.normal_equations", reveals="sums", fewest=task_rows.rows_of_smallest_task)
def local_normal_equations(
    site: Site, U: Matrix, tasks: TaskLabels, centre: Vector, parts: Count = 1
) -> dict[str, Any]:
    """Leaves the site: of every task the sums of ``T'T`` (r, r), ``T'y``, T (r), y, y^2, 1 over a part of its rows.

    ``T = X U``, less `centre` (r + 1): that of T, then that of y. The part is the first of `parts`; of one: all rows.
    """
    r, q = U.shape[1], len(tasks)
    gram, cross, sums = np.zeros((q, r, r)), np.zeros((q, r)), np.zeros((q, r + 1))
    squares, rows = np.zeros(q), np.zeros(q, dtype=np.int64)
    own = TaskRows.of(site)
    at, known = positions(own.labels, tasks)
    for block in own.blocks():
        here = at[block.tasks][known[block.tasks]]
        T = (block.X[:, ::parts] @ U)[known[block.tasks]] - centre[:-1]
        y = block.y[:, ::parts][known[block.tasks]] - centre[-1]
        gram[here] = T.transpose(0, 2, 1) @ T
        cross[here] = (y[:, None, :] @ T)[:, 0]
        sums[here] = np.concatenate([T.sum(axis=1), y.sum(axis=1)[:, None]], axis=1)
        squares[here], rows[here] = np.einsum("km,km->k", y, y), y.shape[1]
    return {"gram": gram, "cross": cross, "sums": sums, "squares": squares, "rows": rows}


@step(
    "few_shot.coefs",
    reveals="rows",
    ragged=["task", "loadings", "intercepts", "rows"],
    fewest=task_rows.rows_of_smallest_task,
)
@np.errstate(over="ignore", invalid="ignore")  # of numbers so large that the policy refuses the reply
def local_coefs(
    site: Site, U: Matrix, intercept: bool, ridge: NotNegative, below: Annotated[int, Whole(0, MOST_ROWS)]
) -> dict[str, Any]:
    """Leaves the site: labels and numbers of rows of its tasks, their coefficients ``b_k`` (q, r) and intercepts."""
    own = TaskRows.of(site)
    loadings, intercepts = np.zeros((len(own), U.shape[1])), np.zeros(len(own))
    for block in own.blocks():
        penalty = ridge if block.y.shape[1] < below else 0.0
        loadings[block.tasks], intercepts[block.tasks] = fitted(block.X @ U, block.y, intercept, penalty)
    return {"task": own.labels, "loadings": loadings, "intercepts": intercepts, "rows": own.counts}


def pooled_coefs(
    fed: Federation, *, U: Matrix, tasks: Labels, intercept: bool = False, ridge: float = 0.0, below: int = MOST_ROWS
) -> TaskCoefs:
    """Return the least-squares coefficients of the pooled rows of each task that has rows. Only sums are needed.

    Tasks with fewer rows than `below` have the penalty `ridge` on ``||b_k||^2``. When sites fail, all are requested
    again, at most twice, and each task's sums are those with most of its rows.
    """
    payload = {"U": U, "tasks": tasks, "centre": common_centre(fed, U, intercept)}
    total = fed.sum(local_normal_equations, **payload)
    best = {key: np.array(value) for key, value in total.items()}
    for _ in range(2):
        if not total.failed:
            break
        total = fed.sum(local_normal_equations, **payload)
        more = total["rows"] > best["rows"]
        for key, value in best.items():
            value[more] = total[key][more]
    there = best["rows"] > 0
    gram, cross, squares, means, rows = centred(best, there, intercept)
    penalized = gram + np.where(rows < below, ridge, 0.0)[:, None, None] * np.eye(gram.shape[1])
    loadings = (inverses(penalized) @ cross[:, :, None])[:, :, 0]
    explained = 2 * np.einsum("kr,kr->k", cross, loadings) - np.einsum("kr,krs,ks->k", loadings, gram, loadings)
    free = rows - gram.shape[1] - intercept
    errors = np.sqrt(np.maximum(squares - explained, 0.0) / np.where(free > 0, free, np.nan))
    means = means + payload["centre"]
    level = means[:, -1] - np.einsum("kr,kr->k", means[:, :-1], loadings)
    return TaskCoefs(np.asarray(tasks)[there], loadings, level if intercept else np.zeros(len(level)), errors)


def common_centre(fed: Federation, U: Matrix, intercept: bool) -> Vector:
    """Return the mean of ``T = X U`` and y over all rows (r + 1,), zeros without an `intercept`: one round.

    The squares of values far from zero hide their variance: their difference would be rounding errors.
    """
    if not intercept:
        return np.zeros(U.shape[1] + 1)
    total = fed.sum(local_totals, U=U)
    return np.asarray(total["totals"] / max(1, total["rows"]))


def centred(
    sums: Mapping[str, Any], which: NDArray[np.bool_], intercept: bool
) -> tuple[Stack, Matrix, Vector, Matrix, Indices]:
    """Return ``T'T``, ``T'y`` and ``y'y`` of the tasks `which` (q,), about their means with an `intercept`.

    Also their means (of T, then of y) and their rows.
    """
    gram, cross, squares, rows = (sums[key][which] for key in ("gram", "cross", "squares", "rows"))
    means = sums["sums"][which] / rows[:, None]
    if intercept:
        gram = gram - rows[:, None, None] * means[:, :-1, None] * means[:, None, :-1]
        cross = cross - rows[:, None] * means[:, :-1] * means[:, -1:]
        squares = squares - rows * means[:, -1] ** 2
    return gram, cross, squares, means, rows


def inverses(grams: Stack) -> Stack:
    """Return the pseudo-inverses of ``T'T`` (q, r, r)."""
    return np.asarray(np.linalg.pinv(grams, rcond=_SINGULAR, hermitian=True))


def median_coefs(
    fed: Federation,
    *,
    U: Matrix,
    tasks: Tasks | None = None,
    intercept: bool = False,
    ridge: float = 0.0,
    below: int = MOST_ROWS,
) -> TaskCoefs:
    """Return the geometric median of the sites' coefficients for each task, and the median of their intercepts.

    If any site has more rows of a task than unknowns, only such sites count. No site counts that names the tasks of
    others while an owner reports (see `Tasks.meddling`). A task at one site has that site's coefficients. One at two
    sites has their mean if they agree (see `between_two`), slopes and intercept separately, and otherwise zero, with a
    warning. Sites that fail are requested again, at most twice. About 3 ms for every task at three sites or more.

    `tasks` is the result of `agree_on_tasks`, where it is known already. Tasks with fewer rows at a site than `below`
    have the penalty `ridge` on ``||b_k||^2`` there.
    """
    tasks = tasks or agree_on_tasks(fed, intercept=intercept, resilient=True)
    fed = fed.subset(site for site in fed.sites if site in tasks.held)
    r = U.shape[1]
    payload: dict[str, Any] = {"U": U, "intercept": intercept, "ridge": ridge, "below": below}
    replies = reports.ask_repeatedly(fed, local_coefs, lambda reply: _checked(reply, r), **payload)
    votes = [_votes(site, reply, tasks) for site, reply in replies.items()]
    code, b, a, rows, owner = (np.concatenate(column) for column in zip(*votes, strict=True))
    known, code = np.unique(code, return_inverse=True)
    loadings, intercepts = np.zeros((len(known), r)), np.zeros(len(known))
    order, contradicted = np.argsort(code, kind="stable"), 0
    for k, there in enumerate(np.split(order, np.searchsorted(code[order], np.arange(1, len(known))))):
        voters = there
        for better in (owner, rows > r + intercept):
            voters = voters[better[voters]] if better[voters].any() else voters
        if len(voters) < 3:
            size = float(np.abs(b[voters]).max(axis=1).min())  # of the shorter slopes: below that intercepts are noise
            slopes, level = between_two(b[voters]), between_two(a[voters, None], size)
            contradicted += slopes is None or level is None
            loadings[k] = 0.0 if slopes is None else slopes
            intercepts[k] = 0.0 if level is None else level[0]
        else:
            loadings[k], intercepts[k] = geometric_median(b[voters]).point, np.median(a[voters])
    if contradicted:
        reports.warn(
            f"{contradicted} of {len(known)} tasks have rows at two sites whose coefficients contradict each other. "
            "Slopes or intercepts that do are taken as zero: use adapt on rows that you trust"
        )
    return TaskCoefs(tasks.labels[known], loadings, intercepts, np.full(len(known), np.nan))


def between_two(values: Matrix, close: float = 0.0) -> Vector | None:
    """Return one value (1, d) as it is, and the mean of two (2, d) if they agree, otherwise ``None``.

    Two values contradict each other if they are farther apart than the shorter one is long (by their largest entries),
    and than `close`. Zero in their place is off by the honest value's length at most. Taking the shorter one would let
    a malicious site reverse it.

    Examples
    --------
    >>> between_two(np.array([[1.0, 2.0], [1.2, 2.2]])), between_two(np.array([[1.0, 2.0], [9.0, 9.0]]))
    (array([1.1, 2.1]), None)
    """
    with np.errstate(over="ignore"):  # of false reports
        apart = np.abs(values - values[0]).max()
    agree = apart <= max(close, np.abs(values).max(axis=1).min())
    return np.asarray(values.mean(axis=0)) if agree else None


def _votes(site: str, reply: Message, tasks: Tasks) -> tuple[NDArray[Any], ...]:
    """Return a site's report on the tasks that it named before: which, b, a, rows, and whether it is an owner."""
    at, known = positions(np.asarray(reply["task"]), tasks.labels)
    known &= np.isin(at, tasks.held[site][0])
    owner = np.full(int(known.sum()), site not in tasks.meddling)
    return (at[known], *(np.asarray(reply[key])[known] for key in ("loadings", "intercepts", "rows")), owner)


def _checked(reply: Message, r: int) -> Message:
    """Return a site's coefficients, or refuse them."""
    named = reports.reported_tasks(reply)
    shapes = {"loadings": (len(named["task"]), r), "intercepts": (len(named["task"]),)}
    return {**named, **{key: reports.reported_array(reply, key, shape) for key, shape in shapes.items()}}
