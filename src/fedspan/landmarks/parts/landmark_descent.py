"""Steps of landmarks down the gradient of MMD^2, from the pull of rows: arithmetic that all variants of FedDL share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull
from fedspan.sums.plausible_totals import ABSURD

Array = NDArray[Any]
Matrix = NDArray[np.float64]


def descended(
    pull_at: Callable[[int, Array], Array], Y: Array, n: int, gamma: float, size: float, steps: int, upload: str
) -> Array:
    """Return n times the landmarks after some steps at a site, or n times the mean gradient on the way."""
    moved = np.asarray(Y, dtype=np.float64)
    for number in range(steps):
        pull = pull_at(number, moved.astype(Y.dtype, copy=False))
        moved = moved - size * mean_gradient(pull, n, own_pull(moved, gamma)[0], gamma)
    sent = moved if upload == "landmarks" else (Y - moved) / (steps * size)
    return np.asarray((n * sent).astype(Y.dtype, copy=False))


def own_pull(Y: Matrix, gamma: float) -> tuple[Matrix, float]:
    """Return the landmarks' pull at one another, and their mean kernel value."""
    pull, total = kernel_pull(Y, Y, gamma)
    return pull, total / len(Y) ** 2


def mean_gradient(pull: Array, n: int, own: Matrix, gamma: float) -> Matrix:
    """Return ``grad f`` (n_y, m) from the pull of n rows and the landmarks' own."""
    n_y = len(own)
    gradient = 4 * gamma * (own / (n_y * (n_y - 1)) - per_row(pull, n) / n_y)
    return np.asarray(gradient)


def kept_within(Y: Matrix, radius: float) -> Matrix:
    """Return landmarks, or their velocities, those longer than `radius` drawn in to it.

    Out there no row would pull them back from where noise or momentum takes them.

    Examples
    --------
    >>> kept_within(np.array([[3.0, 4.0], [0.0, 1.0]]), 1.0)
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    if radius == np.inf:
        return Y
    Y = np.clip(Y, -ABSURD, ABSURD)  # no square overflows
    norms = np.linalg.norm(Y, axis=1, keepdims=True)
    return np.asarray(Y * np.minimum(1.0, radius / np.maximum(norms, np.finfo(float).tiny)))


def per_row(total: Any, n: int) -> Any:
    """Return a sum over n rows as a mean."""
    if n < 1:
        raise InputError("the sites that answered have no rows: there is nothing to learn from")
    return total / n
