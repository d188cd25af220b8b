"""A site's tasks: their labels, and their rows in blocks of equally large tasks.

Two products of width n read a block while it is in the processor's cache. All else has width r and is done for many
tasks at once. So a pass takes as long as reading the rows once, whatever the sizes of the tasks. Memory beyond the
data: one block, and a copy of the rows unless they are in order already. The smallest tasks come first, and tasks of
one size by label. Never a system of n q or n r unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, MessageError
from fedspan.federation import Site
from fedspan.federation.site.parameters import Indices, Matrix, Vector
from fedspan.linalg.regression.stacked_least_squares import checked_least_squares
from fedspan.sums.row_blocks import n_columns

Labels = NDArray[Any]

#: Numbers beyond this, or all below one over it, have squares and quotients whose squares leave the range of doubles.
EXTREME = 1e70
#: Most characters of a label.
LONGEST_LABEL = 200
_BLOCK_BYTES = 6 * 2**20  # fits the third-level cache, where the second product finds it


def task_labels(values: Any, name: str) -> Labels:
    """Return the labels of tasks, one for each row, as whole numbers (int64) or as text; refuse missing ones.

    Examples
    --------
    >>> task_labels([2.0, 1.0], "task"), task_labels(np.array(["a", 3], dtype=object), "task")
    (array([2, 1]), array(['a', '3'], dtype='<U1'))
    """
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise InputError(f"{name} has the shape {labels.shape}, and must have one label for each row")
    if labels.dtype == object:
        given = labels.tolist()
        if any(map(_is_missing, given)):
            raise InputError(f"{name} has missing values: every row must belong to a task")
        whole = all(isinstance(label, int | np.integer) for label in given)
        labels = np.array(given) if whole else labels.astype(str)  # numbers beyond 64 bits stay objects
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise InputError(f"{name} has NaN or infinity among its labels: every row must belong to a task")
        whole = (labels == np.round(labels)).all() and (np.abs(labels) < 2.0**53).all()
        labels = labels.astype(np.int64 if whole else str)
    if labels.dtype.kind in "biu" and not (labels.size and int(labels.max()) > np.iinfo(np.int64).max):
        return labels.astype(np.int64)
    if labels.dtype.kind != "U":
        raise InputError(f"{name} has labels of type {labels.dtype}, and must have whole numbers of 64 bits or text")
    if labels.dtype.itemsize > 4 * LONGEST_LABEL and np.char.str_len(labels).max(initial=0) > LONGEST_LABEL:
        raise InputError(f"{name} has labels of more than {LONGEST_LABEL} characters: rename them")
    return labels


def _is_missing(label: object) -> bool:
    nan = isinstance(label, float | np.floating) and bool(np.isnan(label))
    return nan or type(label).__name__ in ("NoneType", "NAType", "NaTType")


class DistinctLabels:
    """A declared kind of parameter: distinct whole numbers or texts, at least one."""

    def check(self, name: str, value: object) -> Labels:
        """Return the labels, or refuse them."""
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuU":
            with suppress(InputError):
                labels = task_labels(value, name)
                if labels.size and len(np.unique(labels)) == len(labels):
                    return labels
        raise MessageError(f"{name} must hold distinct whole numbers or texts of up to {LONGEST_LABEL} characters")


TaskLabels = Annotated[Labels, DistinctLabels()]


def positions(own: Labels, common: Labels) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where labels stand among the `common` ones, and which of them are there at all.

    Two labels are the same task when they read the same: 3 and "3" are.

    Examples
    --------
    >>> positions(np.array(["3", "x", "03"]), np.array([2, 3, 10]))[1]
    array([ True, False, False])
    """
    if not len(common):
        return np.zeros(len(own), dtype=np.intp), np.zeros(len(own), dtype=bool)
    if own.dtype.kind != common.dtype.kind:
        own, common = own.astype(str), common.astype(str)
    order = np.argsort(common, kind="stable")
    at = order[np.minimum(np.searchsorted(common, own, sorter=order), len(common) - 1)]
    return at, common[at] == own


class Block(NamedTuple):
    """Some tasks with the same number of rows: which of the site's tasks, X (k, m, n) and y (k, m)."""

    tasks: slice
    X: Matrix
    y: Matrix


@dataclass(frozen=True)
class TaskRows:
    """The rows X (m, n) and targets y (m,) of a site, sorted by the size of their task, then by task.

    `labels` (q,) and `counts` (q,) are the tasks and their numbers of rows. `named`: whether the site's rows have
    tasks; otherwise all are of one task, number 0.
    """

    labels: Labels
    counts: Indices
    named: bool
    X: NDArray[Any]
    y: Vector

    @classmethod
    def of(cls, site: Site) -> TaskRows:
        """Return the rows of `site` by task; checked and sorted once, then kept."""
        return site.cached("rows by task", lambda: cls._sorted(site))

    @classmethod
    def _sorted(cls, site: Site) -> TaskRows:
        n_columns(site)
        if not len(site):
            raise InputError("this site has no rows")
        X, y = site.X, _targets(site)
        bad = int(np.sum(~np.isfinite(X).all(axis=0))) if X.dtype.kind == "f" else 0
        if bad:
            raise InputError(f"X contains NaN or infinity in {bad} features")
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


def _targets(site: Site) -> Vector:
    y = site.y
    if y is None:
        raise InputError("the site has no targets: give it y")
    if y.dtype.kind not in "biuf" or y.size != len(site):
        raise InputError(f"y is {y.dtype}{y.shape}, and must hold one number for each row")
    y = y.astype(np.float64).ravel()
    if not np.isfinite(y).all():
        raise InputError(f"y contains NaN or infinity in {int(np.sum(~np.isfinite(y)))} rows")
    refuse_extreme(y, "y", "targets")
    return y


def is_extreme(values: NDArray[Any]) -> bool:
    """Return whether numbers are so large, or all so small, that their squares are lost."""
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return largest > EXTREME or 0.0 < largest < 1 / EXTREME


def refuse_extreme(values: NDArray[Any], name: str, what: str) -> None:
    """Refuse numbers that are extreme."""
    if is_extreme(values):
        raise InputError(f"{name} is beyond {EXTREME:g}, or all of it below {1 / EXTREME:g}: rescale the {what}")


def least_rows(unknowns: int, parts: int) -> int:
    """Return how many rows a task needs so that each part of a sample split into `parts` has more rows than unknowns.

    Part i of a task has its rows i, i + parts, i + 2 parts, ...
    """
    return (unknowns + 1) * parts


def fitted(T: NDArray[np.float64], y: Matrix, intercept: bool, ridge: float = 0.0) -> tuple[Matrix, Vector]:
    """Return the least-squares ``b_k`` (k, r) and intercepts (k,) of tasks ``T_k`` (k, m, r) and ``y_k`` (k, m).

    With a penalty `ridge` on ``||b_k||^2``, but none on the intercept. Where the rows do not decide, ``b_k`` has the
    least norm.
    """
    k, _, r = T.shape
    centre, level = np.zeros((k, r)), np.zeros(k)
    if intercept:
        centre, level = T.mean(axis=1), y.mean(axis=1)
        T, y = T - centre[:, None], y - level[:, None]
    if ridge > 0.0:  # r more rows, whose residuals are the penalty
        penalty = np.broadcast_to(np.sqrt(ridge) * np.eye(r), (k, r, r))
        T, y = np.concatenate([T, penalty], axis=1), np.concatenate([y, np.zeros((k, r))], axis=1)
    b = checked_least_squares(T, y)
    return b, level - np.einsum("kr,kr->k", centre, b) if intercept else level


# The smallest numbers of rows that one number of a reply summarises (``@step(fewest=...)``). They consider all tasks of
# the site, not only at the requested ones: a refusal must not reveal which tasks the site has.


def rows_of_smallest_task(site: Site, *, parts: int = 1, **_: Any) -> int:
    """Return the rows of the smallest task in the first of `parts` parts."""
    return _nested(parts, int(_in_part(_sizes(site), 0, parts).min()))


def rows_of_descent(
    site: Site,
    *,
    U: Matrix,
    intercept: bool = False,
    fit_part: int = 0,
    descend_part: int = 0,
    parts: int = 1,
    least: int = 0,
    **_: Any,
) -> int:
    """Return the rows of the smaller of two parts, over the tasks of one size that take part; all rows if none does.

    The difference of the sums for two thresholds is about the tasks of one size.
    """
    sizes = _sizes(site)
    used, tasks = np.unique(sizes[sizes >= max(least, least_rows(U.shape[1] + intercept, parts))], return_counts=True)
    rows = [int((tasks * _in_part(used, number, parts)).min(initial=len(site))) for number in (fit_part, descend_part)]
    return _nested(parts, min(rows))


def _nested(parts: int, rows: int) -> int:
    """Return 1 unless the number of parts is a power of two, whose parts are unions of smaller ones.

    The parts of other numbers overlap: of 200 rows, the sums over parts of up to 40 parts gave each row.
    """
    return 1 if parts & (parts - 1) else rows


def _sizes(site: Site) -> Indices:
    """Return the number of rows of each task."""
    task = np.zeros(len(site)) if site.task is None else site.task
    return site.cached("task sizes", lambda: np.unique(task, return_counts=True)[1])


def _in_part(sizes: Indices, number: int, parts: int) -> Indices:
    """Return how many rows of tasks of these sizes are in a part."""
    if number >= parts:
        raise InputError(f"part {number} of {parts} does not exist")
    return -((number - sizes) // parts)
