"""A site's rows, task after task, in blocks of equally large tasks: what the few-shot protocols compute with.

What is n wide is touched in two products per block, while the block is in the processor's cache; all else is r wide,
and done for many tasks at once.
So the time is that of reading the rows once, however the tasks are cut. Memory beyond the data: one block, and a copy
of the rows unless they lie task after task already, the smallest tasks first, tasks of one size by name.
Never a system of n q or n r unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.few_shot.parts.task_names import task_labels
from fedspan.linalg.regression.stacked_least_squares import checked_least_squares
from fedspan.sums.row_blocks import n_columns

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

#: Numbers beyond this, or all below one over it, have squares and quotients whose squares leave the range of doubles.
EXTREME = 1e70
_BLOCK_BYTES = 6 * 2**20  # fits the third-level cache, where the second product finds it
_PRODUCT_BYTES = 3 * 2**17  # what BLAS multiplies without copying it first


class Block(NamedTuple):
    """Some tasks with the same number of rows.

    Attributes
    ----------
    tasks : slice
        Which of the site's tasks these are.
    X : array (k, m, n)
    y : array (k, m)
    """

    tasks: slice
    X: Matrix
    y: Vector


@dataclass(frozen=True)
class TaskRows:
    """The rows of a site, sorted by the size of their task, then by task.

    Attributes
    ----------
    labels : array (q,)
        The tasks: whole numbers or text.
    counts : array (q,)
        Rows of each task.
    named : bool
        Whether the site has tasks of its own; otherwise all its rows are of one, number 0.
    """

    labels: NDArray[Any]
    counts: NDArray[np.int64]
    named: bool
    X: NDArray[Any]
    y: Vector

    @classmethod
    def of(cls, site: Site) -> TaskRows:
        """Return the rows of `site` by task; sorted and checked once, then kept."""
        return site.cached("rows by task", lambda: cls._sorted(site))

    @classmethod
    def _sorted(cls, site: Site) -> TaskRows:
        n_columns(site)
        if not len(site):
            raise InputError("this site has no rows")
        X, y = site.X, _targets(site)
        bad = ~np.isfinite(X).all(axis=0) if X.dtype.kind == "f" else np.zeros(1, dtype=bool)
        if bad.any():
            raise InputError(f"X contains NaN or infinity in {int(bad.sum())} features")
        refuse_extreme(X, "X", "features")
        given = np.zeros(len(site), dtype=np.int64) if site.task is None else task_labels(site.task, "task")
        labels, codes, counts = np.unique(given, return_inverse=True, return_counts=True)
        order = np.lexsort((codes, counts[codes]))  # stable: rows of one task stay in their order
        if (order[1:] < order[:-1]).any():
            X, y = X[order], y[order]
        by_size = np.argsort(counts, kind="stable")
        return cls(labels[by_size], counts[by_size].astype(np.int64), site.task is not None, X, y)

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self, least: int = 1) -> Iterator[Block]:
        """Yield the tasks of at least `least` rows in blocks of about 6 MiB, in double precision."""
        for tasks, rows, shape in self._bounds:
            if shape[1] >= least:
                X = np.asarray(self.X[rows], dtype=np.float64)
                yield Block(tasks, X.reshape(shape), self.y[rows].reshape(shape[:2]))

    @cached_property
    def _bounds(self) -> list[tuple[slice, slice, tuple[int, int, int]]]:
        """Tasks, rows and shape (tasks, rows per task, features) of each block."""
        bounds, first, row, n = [], 0, 0, self.X.shape[1]
        while first < len(self):
            size = int(self.counts[first])
            alike = int(np.searchsorted(self.counts, size, side="right")) - first
            k = min(alike, max(1, _BLOCK_BYTES // (8 * max(1, n * size))))
            bounds.append((slice(first, first + k), slice(row, row + k * size), (k, size, n)))
            first, row = first + k, row + k * size
        return bounds


@dataclass(frozen=True)
class Part:
    """Every `of`-th row of each task, from row `number` on: a set of the sample split; by default all rows."""

    number: int = 0
    of: int = 1

    @property
    def rows(self) -> slice:
        """The rows of a task that are in it."""
        return slice(self.number, None, self.of)


@dataclass(frozen=True)
class DescentSums:
    """Sums over the rows of tasks that say something about U.

    Attributes
    ----------
    gradient : array (n, r)
        ``sum_k X_k' (X_k U b_k - y_k) b_k'``.
    moment : array (r, r)
        ``sum_k m_k b_k b_k'``.
    loss : float
        ``sum_k ||X_k U b_k - y_k||^2``.
    rows, free : int
        Rows, and rows less what was fitted to them: the degrees of freedom of the loss.
    """

    gradient: Matrix
    moment: Matrix
    loss: float
    rows: int
    free: int


def descent_sums(tasks: TaskRows, U: Matrix, intercept: bool, fit: Part, descend: Part) -> DescentSums:
    """Minimise over every ``b_k`` on the rows `fit`, and return the gradient with respect to U on the rows `descend`.

    A task with no more rows than unknowns is fitted exactly whatever U is: it says nothing about U and is left out.
    """
    n, r = U.shape
    unknowns = r + intercept
    columns = np.asfortranarray(U)  # as the product of a wide table and a narrow matrix likes it best
    gradient, loadings, sizes, loss = np.zeros((n, r)), np.zeros((len(tasks), r)), np.zeros(len(tasks)), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the policy refuses the reply
        for block in tasks.blocks(least_rows(unknowns, fit.of)):
            T = tall_product(block.X.reshape(-1, n), columns).reshape(len(block.X), -1, r)
            b, a = fitted(T[:, fit.rows], block.y[:, fit.rows], intercept)
            residual = (T[:, descend.rows] @ b[:, :, None])[:, :, 0] - block.y[:, descend.rows]
            if intercept:
                residual += a[:, None]
                if fit == descend:  # it is zero but for rounding, which features far from zero would magnify
                    residual -= residual.mean(axis=1, keepdims=True)
            slopes = (residual[:, None, :] @ block.X[:, descend.rows])[:, 0]  # X_k' (X_k U b_k - y_k) as rows
            gradient += slopes.T @ b
            loss += float(np.vdot(residual, residual))
            loadings[block.tasks], sizes[block.tasks] = b, residual.shape[1]
        moment = (loadings * sizes[:, None]).T @ loadings
    rows, used = int(sizes.sum()), int(np.count_nonzero(sizes))
    return DescentSums(gradient, moment, loss, rows, rows - (used * unknowns if fit == descend else 0))


def tall_product(X: Matrix, U: Matrix) -> Matrix:
    """Return ``X @ U`` (N, r) for a long table X (N, n) and few columns U (n, r), a part of the rows at a time."""
    T = np.empty((len(X), U.shape[1]))
    rows = max(1, _PRODUCT_BYTES // (8 * max(1, X.shape[1])))
    for first in range(0, len(X), rows):
        part = slice(first, first + rows)
        np.matmul(X[part], U, out=T[part])
    return T


def least_rows(unknowns: int, parts: int) -> int:
    """Return how many rows a task needs so that each of `parts` of it has more rows than unknowns."""
    return (unknowns + 1) * parts


def fitted(T: Matrix, y: Vector, intercept: bool, ridge: float = 0.0) -> tuple[Matrix, Vector]:
    """Return the least-squares ``b_k`` (k, r) and intercepts (k,) of tasks ``T_k`` (k, m, r) and ``y_k`` (k, m).

    With a penalty `ridge` on ``||b_k||^2``; of least norm where the rows do not decide. The intercept has no part in
    either.
    """
    centre, level = (
        (T.mean(axis=1), y.mean(axis=1)) if intercept else (np.zeros((len(T), T.shape[2])), np.zeros(len(T)))
    )
    if intercept:
        T, y = T - centre[:, None], y - level[:, None]
    if ridge > 0.0:  # as if r more rows had come
        more = np.broadcast_to(np.sqrt(ridge) * np.eye(T.shape[2]), (len(T), T.shape[2], T.shape[2]))
        T, y = np.concatenate([T, more], axis=1), np.concatenate([y, np.zeros((len(y), T.shape[2]))], axis=1)
    b = checked_least_squares(T, y)
    return b, level - np.einsum("kr,kr->k", centre, b) if intercept else level


def is_extreme(values: NDArray[Any]) -> bool:
    """Whether numbers are so large, or all so small, that squares of them and their quotients are lost."""
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return largest > EXTREME or 0.0 < largest < 1 / EXTREME


def refuse_extreme(values: NDArray[Any], name: str, what: str) -> None:
    """Refuse numbers that are extreme."""
    if is_extreme(values):
        raise InputError(f"{name} is beyond {EXTREME:g}, or all of it below {1 / EXTREME:g}: rescale the {what}")


def _targets(site: Site) -> Vector:
    if site.y is None:
        raise InputError(f"site {site.name!r} has no targets: give it y")
    y = site.y
    if y.dtype.kind not in "biuf" or y.size != len(site):
        raise InputError(f"site {site.name!r}: y is {y.dtype}{y.shape}, and must hold one number for each row")
    y = y.astype(np.float64).ravel()
    if not np.isfinite(y).all():
        raise InputError(f"y contains NaN or infinity in {int(np.sum(~np.isfinite(y)))} rows")
    refuse_extreme(y, "y", "targets")
    return y
