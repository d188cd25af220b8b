"""Measures of how near rebuilt rows come to the true ones, and which true row is which."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances_argmin_min

from fedspan.arrays import Array
from fedspan.errors import InputError

Bounds = tuple[float, float]

#: Rebuilt rows that are searched for among all true ones.
_TRIED_ROWS = 5000
#: Rows by which another order is recognised at first.
_FIRST_ROWS = 500
#: Another order must leave at most this part of the error.
_PART = 0.5
#: The nearest true rows of at least this share of the rebuilt ones must be different: wrong rows share many of them.
_DIFFERENT = 0.95


def relative_error(rebuilt: Array, truth: Array) -> float:
    """Return ``||rebuilt - truth|| / ||truth - its mean row||``: guessing the mean row for all has 1.

    Examples
    --------
    >>> relative_error(np.array([[1.0], [1.0]]), np.array([[0.0], [2.0]]))
    1.0
    """
    spread = float(np.linalg.norm(truth - truth.mean(axis=0)))
    error = float(np.linalg.norm(rebuilt - truth))
    return error / spread if spread else math.inf if error else 0.0


def psnr(rebuilt: Array, truth: Array, bounds: Bounds) -> float:
    """Return the peak signal-to-noise ratio in dB, for values within `bounds`, to which rebuilt ones are clipped.

    Examples
    --------
    >>> psnr(np.array([[0.1, 1.2]]), np.array([[0.0, 1.0]]), (0.0, 1.0))  # 10 log10(1 / 0.005)
    23.0103
    """
    low, high = bounds
    error = float(np.mean((np.clip(rebuilt, low, high) - truth) ** 2))
    return 10 * math.log10((high - low) ** 2 / error) if error else math.inf


def reidentified(rebuilt: Array, truth: Array, seen: Array | None = None) -> float:
    """Return the share of rebuilt rows whose nearest true row is the right one, or equal to it.

    Of more than 5000 rows, about 5000 at equal distances are searched for, among all. With `seen` (n, k) it is that of
    received rows (n, k), and `seen` is what would have been received of each true row.

    Examples
    --------
    >>> reidentified(np.array([[0.2], [0.9], [1.1]]), np.array([[0.0], [1.0], [5.0]]))
    0.6667
    """
    tried = np.arange(0, len(truth), -(-len(truth) // _TRIED_ROWS))
    nearest, _ = nearest_rows(rebuilt[tried], truth if seen is None else seen)
    return float((truth[nearest] == truth[tried]).all(axis=1).mean())


def matched_order(rebuilt: Array, truth: Array) -> NDArray[np.intp] | None:
    """Return the true row of each rebuilt one, where the truth came in another order and the nearest rows show which.

    None where the order is right, or rows are rebuilt so badly that it can't be found.
    """
    if len(rebuilt) != len(truth):
        return None
    few = np.linspace(0, len(rebuilt) - 1, min(len(rebuilt), _FIRST_ROWS)).astype(int)
    nearest, _ = nearest_rows(rebuilt[few], truth)
    spread = np.linalg.norm(truth - truth.mean(axis=0)) * np.sqrt(len(few) / len(truth))
    if not np.linalg.norm(rebuilt[few] - truth[nearest]) < _PART * relative_error(rebuilt, truth) * spread:
        return None
    nearest, apart = nearest_rows(rebuilt, truth)
    kinds = np.unique(truth, axis=0, return_inverse=True)[1].reshape(-1)
    different = len(np.unique(kinds[nearest])) / (kinds.max() + 1)
    return _one_to_one(kinds, nearest, apart) if different >= _DIFFERENT else None


def nearest_rows(rows: Array, truth: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the nearest true row of each row, and its distance."""
    centre = truth.mean(axis=0)
    nearest, apart = pairwise_distances_argmin_min(rows - centre, truth - centre)
    return nearest, apart


def _one_to_one(kinds: NDArray[np.intp], nearest: NDArray[np.intp], apart: Array) -> NDArray[np.intp]:
    """Return an order in which every true row occurs once: the closest rebuilt rows get theirs, the others the rest.

    `kinds` numbers equal true rows alike: any of them will do.
    """
    rows = np.argsort(kinds, kind="stable")  # true rows, kind by kind
    counts = np.bincount(kinds)
    starts = np.cumsum(counts) - counts
    closest_first = np.lexsort((apart, kinds[nearest]))  # rebuilt rows, kind by kind
    wanted = kinds[nearest][closest_first]
    rank = np.arange(len(nearest)) - np.searchsorted(wanted, wanted)
    fits = rank < counts[wanted]
    order = np.full(len(nearest), -1, dtype=np.intp)
    order[closest_first[fits]] = rows[(starts[wanted] + rank)[fits]]
    order[order < 0] = np.setdiff1d(np.arange(len(nearest)), order)
    return order


def check_bounds(bounds: object) -> Bounds:
    """Return the least and greatest value that the data may have, or refuse them."""
    try:
        low, high = (float(bound) for bound in bounds)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"bounds={bounds!r} must be the least and the greatest value that the data may have, as (0, 1)"
        )
    return low, high
