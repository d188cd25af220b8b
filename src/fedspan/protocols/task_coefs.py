"""The coefficients of every task, once the representation is learned: one round.

By sums: the normal equations of all rows of a task, so that a task of several sites gets the coefficients that its
pooled rows would give. By medians: each site's own coefficients, and of a task with rows at several sites the geometric
median of theirs; a task that only one site has is that site's word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import geometric_median
from fedspan.protocols.task_rows import TaskRows, fitted
from fedspan.protocols.tasks import Labels, merged_labels, patiently, positions
from fedspan.wire import Message

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

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
    """

    tasks: Labels
    loadings: Matrix
    intercepts: Vector


@step
def local_normal_equations(site: Site, U: Matrix, tasks: Labels) -> dict[str, Any]:
    """Leaves the site: of every task the sums of ``T'T`` (r, r), ``T'y``, T (r), y and 1 over its rows ``T = X U``."""
    r, q = U.shape[1], len(tasks)
    gram, cross, sums = np.zeros((q, r, r)), np.zeros((q, r)), np.zeros((q, r + 1))
    rows = np.zeros(q, dtype=np.int64)
    own = TaskRows.of(site)
    at, known = positions(own.labels, tasks)
    for block in own.blocks():
        here = at[block.tasks][known[block.tasks]]
        T, y = (block.X @ U)[known[block.tasks]], block.y[known[block.tasks]]
        gram[here] = T.transpose(0, 2, 1) @ T
        cross[here] = (y[:, None, :] @ T)[:, 0]
        sums[here] = np.concatenate([T.sum(axis=1), y.sum(axis=1)[:, None]], axis=1)
        rows[here] = y.shape[1]
    return {"gram": gram, "cross": cross, "sums": sums, "rows": rows}


@step(ragged=["task", "loadings", "intercepts", "rows"])
@np.errstate(over="ignore", invalid="ignore")  # of numbers so large that the policy refuses the reply
def local_coefs(site: Site, U: Matrix, intercept: bool) -> dict[str, Any]:
    """Leaves the site: names and numbers of rows of its tasks, their coefficients ``b_k`` (q, r) and intercepts."""
    own = TaskRows.of(site)
    loadings, intercepts = np.zeros((len(own), U.shape[1])), np.zeros(len(own))
    for block in own.blocks():
        loadings[block.tasks], intercepts[block.tasks] = fitted(block.X @ U, block.y, intercept)
    return {"task": own.labels, "loadings": loadings, "intercepts": intercepts, "rows": own.counts}


def pooled_coefs(fed: Federation, *, U: Matrix, tasks: Labels, intercept: bool = False) -> TaskCoefs:
    """Return the least-squares coefficients of the pooled rows of each task. Only sums are needed.

    When sites fail, all are asked again, at most twice, and each task's sums are those that most of its rows are in.
    Tasks without any row are left out.
    """
    total = fed.sum(local_normal_equations, U=U, tasks=tasks)
    best = {key: np.array(total[key]) for key in ("gram", "cross", "sums", "rows")}
    for _ in range(2):
        if not total.failed:
            break
        total = fed.sum(local_normal_equations, U=U, tasks=tasks)
        more = total["rows"] > best["rows"]
        for key, value in best.items():
            value[more] = total[key][more]
    there = best["rows"] > 0
    gram, cross, sums, rows = (best[key][there] for key in ("gram", "cross", "sums", "rows"))
    means = sums / rows[:, None]
    if intercept:
        gram = gram - rows[:, None, None] * means[:, :-1, None] * means[:, None, :-1]
        cross = cross - rows[:, None] * means[:, :-1] * means[:, -1:]
    loadings = (np.linalg.pinv(gram, rcond=_SINGULAR, hermitian=True) @ cross[:, :, None])[:, :, 0]
    level = means[:, -1] - np.einsum("kr,kr->k", means[:, :-1], loadings)
    return TaskCoefs(np.asarray(tasks)[there], loadings, level if intercept else np.zeros(len(level)))


def median_coefs(fed: Federation, *, U: Matrix, intercept: bool = False) -> TaskCoefs:
    """Return the geometric median of the sites' coefficients for each task, and the median of their intercepts.

    Only sites with more rows of the task than unknowns count, if there are any. Of a task at one site its word is
    taken, of one at two sites the mean. Sites that fail are asked again, at most twice. About 3 ms for every task
    that is at three sites or more.
    """
    r = U.shape[1]
    replies = patiently(fed, local_coefs, lambda reply: _checked(reply, r), U=U, intercept=intercept)
    tasks, at = merged_labels({site: reply["task"] for site, reply in replies.items()})
    code = np.concatenate(list(at.values()))
    b, a, rows = (np.concatenate([replies[site][key] for site in at]) for key in _KEYS)
    loadings, intercepts = np.zeros((len(tasks), r)), np.zeros(len(tasks))
    order = np.argsort(code, kind="stable")
    for k, there in enumerate(np.split(order, np.searchsorted(code[order], np.arange(1, len(tasks))))):
        enough = there[rows[there] > r + intercept]
        voters = enough if len(enough) else there
        loadings[k] = b[voters].mean(axis=0) if len(voters) < 3 else geometric_median(b[voters]).point
        intercepts[k] = np.median(a[voters])
    return TaskCoefs(tasks, loadings, intercepts)


_KEYS = ("loadings", "intercepts", "rows")


def _checked(reply: Message, r: int) -> Message:
    labels, b, a, rows = (np.asarray(reply[key]) for key in ("task", *_KEYS))
    q = len(labels) if labels.ndim == 1 else 0
    if not q or labels.dtype.kind not in "iuU" or len(np.unique(labels)) != q:
        raise InputError("the names of a site's tasks must be different whole numbers or texts, at least one")
    if b.shape != (q, r) or a.shape != (q,) or rows.shape != (q,) or not {b.dtype.kind, a.dtype.kind} <= set("iuf"):
        raise InputError(f"a site must tell {r} coefficients, an intercept and a number of rows for each of its tasks")
    if rows.dtype.kind not in "iu":
        raise InputError("numbers of rows must be whole numbers")
    return {"task": labels, "loadings": b.astype(np.float64), "intercepts": a.astype(np.float64), "rows": rows}
