"""A site's tasks: their labels, and their rows in blocks of equally large tasks.

Two products of width n read a block while it is in the processor's cache. All else has width r and is done for many
tasks at once. So a pass takes as long as reading the rows once, whatever the sizes of the tasks. Memory beyond the
data: one block, and a copy of the rows unless they are in order already (the smallest tasks first, tasks of one size by
label). Never a system of n q or n r unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    too_large = InputError(f"{name} has labels beyond 64 bits: rename them")
    if labels.dtype == object:
        if any(map(_is_missing, labels.tolist())):
            raise InputError(f"{name} has missing values: every row must belong to a task")
        whole = all(isinstance(label, int | np.integer) for label in labels.tolist())
        try:
            labels = labels.astype(np.int64 if whole else str)
        except OverflowError:
            raise too_large from None
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise InputError(f"{name} has NaN or infinity among its labels: every row must belong to a task")
        whole = (labels == np.round(labels)).all() and (np.abs(labels) < 2.0**53).all()
        labels = labels.astype(np.int64 if whole else str)
    if labels.dtype.kind in "biu":
        if labels.size and int(labels.max()) > np.iinfo(np.int64).max:
            raise too_large
        return labels.astype(np.int64)
    if labels.dtype.kind != "U":
        raise InputError(f"{name} has labels of type {labels.dtype}, and must have whole numbers or text")
    if labels.dtype.itemsize > 4 * LONGEST_LABEL and np.char.str_len(labels).max(initial=0) > LONGEST_LABEL:
        raise InputError(f"{name} has labels of more than {LONGEST_LABEL} characters: rename them")
    return labels


def _is_missing(label: object) -> bool:
    nan = isinstance(label, float | np.floating) and bool(np.isnan(label))
    return label is None or nan or type(label).__name__ in ("NAType", "NaTType")


class DistinctLabels:
    """A check of what travels as labels: distinct whole numbers or texts, at least one."""

    def check(self, name: str, value: object) -> Labels:
        """Return the labels, or refuse them."""
        try:
            labels = task_labels(value, name)
        except InputError as error:
            raise MessageError(str(error)) from None
        if not labels.size or np.asarray(value).dtype.kind not in "iuU" or len(np.unique(labels)) != len(labels):
            raise MessageError(f"{name} must hold distinct whole numbers or texts, at least one")
        return labels


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
    """The rows of a site, sorted by the size of their task, then by task.

    Attributes
    ----------
    labels : array (q,)
        The tasks: whole numbers or text.
    counts : array (q,)
        Rows of each task.
    named : bool
        Whether the site's rows have tasks; otherwise all are of one task, number 0.
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


def is_extreme(values: NDArray[Any]) -> bool:
    """Return whether numbers are so large, or all so small, that squares of them and their quotients are lost."""
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return largest > EXTREME or 0.0 < largest < 1 / EXTREME


def refuse_extreme(values: NDArray[Any], name: str, what: str) -> None:
    """Refuse numbers that are extreme."""
    if is_extreme(values):
        raise InputError(f"{name} is beyond {EXTREME:g}, or all of it below {1 / EXTREME:g}: rescale the {what}")


@dataclass(frozen=True)
class Part:
    """Every `of`-th row of each task, from row `number` on: a set of the sample split; by default all rows."""

    number: int = 0
    of: int = 1

    @property
    def rows(self) -> slice:
        """The rows of a task that are in it."""
        return slice(self.number, None, self.of)

    def counts(self, sizes: Indices) -> Indices:
        """Return how many rows of tasks of these sizes are in it."""
        if not 0 <= self.number < self.of:
            raise InputError(f"part {self.number} of {self.of} does not exist")
        return np.maximum(0, -((self.number - sizes) // self.of))


def least_rows(unknowns: int, parts: int) -> int:
    """Return how many rows a task needs so that each of `parts` of it has more rows than unknowns."""
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


# The smallest numbers of rows that one number of a reply summarises (``@step(fewest=...)``). They look at all tasks of
# the site, not only at the requested ones: a refusal must not reveal which tasks the site has.


def rows_of_smallest_task(site: Site, *, parts: int = 1, **_: Any) -> int:
    """Return the rows of the smallest task in the first of `parts` parts."""
    return int(Part(0, parts).counts(_sizes(site)).min())


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
    """Return the rows of the smaller part, of all tasks that are large enough to be used; all rows without such tasks.

    Without any the reply is zero.
    """
    sizes = _sizes(site)
    used = sizes[sizes >= max(least, least_rows(U.shape[1] + intercept, parts))]
    rows = [int(Part(number, parts).counts(used).sum()) for number in (fit_part, descend_part)]
    return min(rows) if used.size else len(site)


def _sizes(site: Site) -> Indices:
    """Return the number of rows of each task."""
    if site.task is None:
        return np.array([len(site)])
    task = site.task
    return site.cached("task sizes", lambda: np.unique(task, return_counts=True)[1])
