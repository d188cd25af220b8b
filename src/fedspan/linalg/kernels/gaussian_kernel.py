"""Sums of the Gaussian kernel ``k(x, y) = exp(-gamma ||x - y||^2)`` between many rows and a few landmarks.

Two matrix products per block of rows, in the rows' own precision; sums over blocks are in double precision. Arrays may
be of numpy or, through the array API, tensors on a graphics card (`fedspan.linalg.array_backend`). Rows and landmarks must
have a common reference subtracted before (`fedspan.landmarks.feddl` does): ``|x|^2 + |y|^2 - 2 x'y`` loses all digits
of single precision where a common offset is large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.array_backend import Array, namespace, on_processor, to_numpy

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

#: Rows of a block: large enough for the matrix products, small enough to stay in a processor's cache.
BLOCK_ROWS = 1024
#: Of a graphics card: large enough to keep it busy.
CARD_BLOCK_ROWS = 65536


def squared_norms(X: Array) -> Array:
    """Return ``||x_i||^2`` (n,), in the precision of X."""
    return namespace(X).vecdot(X, X)


def squared_distances(X: Array, Y: Array, norms: Array | None = None) -> Array:
    """Return ``||x_i - y_j||^2`` (n, n_y), never negative, in the precision of X; `norms` are those of X's rows."""
    D: Array = X @ Y.T
    D *= -2
    D += (squared_norms(X) if norms is None else norms)[:, None]
    D += squared_norms(Y)
    return np.maximum(D, 0, out=D) if isinstance(D, np.ndarray) else namespace(D).clip(D, min=0)


def kernel_pull(X: Array, Y: Array, gamma: float, norms: Array | None = None) -> tuple[Matrix, float]:
    """Return how the rows of X pull at the landmarks, and the sum of the kernel.

    Parameters
    ----------
    X : array (n, m)
        float32 or float64: the precision of the products. Of numpy, or a tensor: that is where they are computed.
    Y : array (n_y, m)
        Of the same kind, at the same place.
    gamma : float
    norms : array (n,), optional
        ``||x_i||^2``, where it is known.

    Returns
    -------
    pull : array (n_y, m)
        ``A_j = sum_i k(x_i, y_j) (x_i - y_j)``; the gradient of ``sum_ij k(x_i, y_j)`` is ``2 gamma A``.
    total : float
        ``sum_ij k(x_i, y_j)``.

    Notes
    -----
    O(n n_y m) time, `BLOCK_ROWS` times n_y memory beside the result.

    Examples
    --------
    >>> pull, total = kernel_pull(np.array([[1.0, 0.0]]), np.zeros((1, 2)), gamma=np.log(2))
    >>> pull, total
    (array([[0.5, 0. ]]), 0.5)
    """
    xp = namespace(X)
    Y = xp.asarray(Y, dtype=X.dtype)
    norms = squared_norms(X) if norms is None else norms
    size = BLOCK_ROWS if on_processor(X) else CARD_BLOCK_ROWS
    pull = xp.zeros(Y.shape, dtype=xp.float64, device=X.device)
    mass = xp.zeros(len(Y), dtype=xp.float64, device=X.device)
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        K = kernel_matrix(X[part], Y, gamma, norms[part])
        pull += K.T @ X[part]
        mass += xp.sum(K, axis=0, dtype=xp.float64)
    pull -= mass[:, None] * Y
    return to_numpy(pull), float(xp.sum(mass))


def kernel_matrix(X: Array, Y: Array, gamma: float, norms: Array | None = None) -> Array:
    """Return ``k(x_i, y_j)`` (n, n_y), in the precision of X.

    Examples
    --------
    >>> kernel_matrix(np.array([[0.0], [1.0]]), np.array([[0.0]]), gamma=np.log(2))
    array([[1. ],
           [0.5]])
    """
    K = squared_distances(X, Y, norms)
    K *= -gamma
    return np.exp(K, out=K) if isinstance(K, np.ndarray) else namespace(K).exp(K)


def mmd2(X: Array, Y: Array, gamma: float) -> float:
    """Return the V-statistic of the squared maximum mean discrepancy between the rows of X and of Y: never negative.

    O((n + n_y)^2 m) time, in blocks; needs all rows in one place, which a federation does not have: there
    `characteristic` estimates it.

    Examples
    --------
    >>> mmd2(np.array([[0.0]]), np.array([[1.0]]), gamma=np.log(2))
    1.0
    """
    centre = np.mean(Y, axis=0, dtype=np.float64)
    X, Y = np.asarray(X, dtype=np.float64) - centre, np.asarray(Y, dtype=np.float64) - centre
    return max(0.0, _mean_kernel(X, X, gamma) - 2 * _mean_kernel(X, Y, gamma) + _mean_kernel(Y, Y, gamma))


def _mean_kernel(X: Matrix, Y: Matrix, gamma: float) -> float:
    blocks = range(0, len(X), BLOCK_ROWS)
    total = sum(float(kernel_matrix(X[i : i + BLOCK_ROWS], Y, gamma).sum()) for i in blocks)
    return total / (len(X) * len(Y))


def frequencies(rng: np.random.Generator, count: int, columns: int, gamma: float) -> Matrix:
    """Return draws (count, m) of the kernel's spectrum: ``k(x, y) = E cos(w'(x - y))`` with ``w ~ N(0, 2 gamma I)``."""
    return np.asarray(np.sqrt(2 * gamma) * rng.standard_normal((count, columns)))


def characteristic(X: Array, W: Array) -> Matrix:
    """Return ``sum_i (cos w_l'x_i, sin w_l'x_i)`` (2, count): sums that add up over sites.

    The mean square of the difference between two such means estimates `mmd2` without bias: the relative error is
    about ``sqrt(2 / count)``.
    """
    total = np.zeros((2, len(W)))
    W = np.asarray(W, dtype=X.dtype)
    for start in range(0, len(X), BLOCK_ROWS):
        angles = X[start : start + BLOCK_ROWS] @ W.T
        total[0] += np.cos(angles).sum(axis=0, dtype=np.float64)
        total[1] += np.sin(angles).sum(axis=0, dtype=np.float64)
    return total
