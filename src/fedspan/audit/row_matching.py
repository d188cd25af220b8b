"""True rows that are given in another order than the rows were received in: which is which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.row_measures import relative_error
from fedspan.linalg.kernels.gaussian_kernel import squared_distances

Array = NDArray[Any]

#: Part of the error as given that must be left for an order to count as another one.
_PART = 0.5
#: Share of rebuilt rows whose nearest true rows must be different ones: of wrong rows many have the same.
_DIFFERENT = 0.95
_TRIED_ROWS = 500
_BLOCK_ROWS = 512


def matched_order(rebuilt: Array, truth: Array) -> NDArray[np.intp] | None:
    """Return the true row of each rebuilt one, where the order differs and the nearest rows say which is which.

    None where the order is right, or cannot be told from rows that are rebuilt so badly.

    Examples
    --------
    >>> truth = np.arange(10.0).reshape(5, 2)
    >>> matched_order(truth[[2, 0, 1, 4, 3]] + 0.01, truth)
    array([2, 0, 1, 4, 3])
    """
    if len(rebuilt) != len(truth):
        return None
    given = relative_error(rebuilt, truth)
    few = np.linspace(0, len(rebuilt) - 1, min(len(rebuilt), _TRIED_ROWS)).astype(int)
    nearest, _ = _nearest(rebuilt[few], truth)
    spread = np.linalg.norm(truth - truth.mean(axis=0)) * np.sqrt(len(few) / len(truth))
    if not np.linalg.norm(rebuilt[few] - truth[nearest]) < _PART * given * spread:
        return None
    nearest, apart = _nearest(rebuilt, truth)
    kinds = np.unique(truth, axis=0, return_inverse=True)[1].reshape(-1)
    different = len(np.unique(kinds[nearest])) / (kinds.max() + 1)
    return _one_to_one(kinds, nearest, apart) if different >= _DIFFERENT else None


def _nearest(rows: Array, truth: Array) -> tuple[NDArray[np.intp], Array]:
    centre = truth.mean(axis=0)
    found, apart = np.empty(len(rows), dtype=np.intp), np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK_ROWS):
        D = squared_distances(rows[start : start + _BLOCK_ROWS] - centre, truth - centre)
        part = slice(start, start + len(D))
        found[part], apart[part] = D.argmin(axis=1), D.min(axis=1)
    return found, apart


def _one_to_one(kinds: NDArray[np.intp], nearest: NDArray[np.intp], apart: Array) -> NDArray[np.intp]:
    """Return an order in which every true row is once: the closest get it, and the others what is left.

    Of equal rows, which `kinds` numbers alike, there are as many as there are.
    """
    rows = np.argsort(kinds, kind="stable")  # true rows, kind by kind
    counts = np.bincount(kinds)
    starts = np.cumsum(counts) - counts
    wanted = kinds[nearest]
    closest_first = np.lexsort((apart, wanted))  # rebuilt rows, kind by kind
    rank = np.arange(len(nearest)) - np.searchsorted(wanted[closest_first], wanted[closest_first])
    fits = rank < counts[wanted[closest_first]]
    order = np.full(len(nearest), -1, dtype=np.intp)
    order[closest_first[fits]] = rows[(starts[wanted[closest_first]] + rank)[fits]]
    order[order < 0] = np.setdiff1d(np.arange(len(nearest)), order)
    return order
