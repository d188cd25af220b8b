"""How near rebuilt rows come to the true ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

Array = NDArray[Any]
Bounds = tuple[float, float]

#: Rebuilt rows that are looked for among all true ones.
_TRIED_ROWS = 5000
_BLOCK_ROWS = 256


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


def reidentified(rebuilt: Array, truth: Array) -> float:
    """Return the share of rebuilt rows whose nearest true row is the right one, or equal to it.

    Of more than 5000 rows every so-manieth is looked for, among all.

    Examples
    --------
    >>> reidentified(np.array([[0.2], [0.9], [1.1]]), np.array([[0.0], [1.0], [5.0]]))
    0.6667
    """
    centre = truth.mean(axis=0)
    rebuilt, truth = rebuilt - centre, truth - centre
    squares = np.vecdot(truth, truth)
    tried = np.arange(0, len(truth), -(-len(truth) // _TRIED_ROWS))
    right = 0
    for start in range(0, len(tried), _BLOCK_ROWS):
        rows = tried[start : start + _BLOCK_ROWS]
        nearest = (squares - 2 * rebuilt[rows] @ truth.T).argmin(axis=1)
        right += int((truth[nearest] == truth[rows]).all(axis=1).sum())
    return right / len(tried)


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
