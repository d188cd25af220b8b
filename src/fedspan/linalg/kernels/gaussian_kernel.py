"""The Gaussian kernel ``k(x, y) = exp(-gamma ||x - y||^2)`` between many rows and a few landmarks.

Its sums, and the spectral embedding of the Nystrom kernel ``K_hat = K W^+ K'``. Matrix products are in the rows' own
precision, in blocks; sums over blocks are in double precision. Arrays are numpy's or, through the array API, tensors on
a GPU (`fedspan.linalg.array_backend`). Subtract a common reference from rows and landmarks first, as
`fedspan.landmarks.feddl` does: with a large common offset, ``|x|^2 + |y|^2 - 2 x'y`` loses all digits of single
precision.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.checks import whole_number
from fedspan.linalg.array_backend import Array, namespace, on_processor, to_numpy
from fedspan.linalg.kernels.tensor_cores import rounded_kernel, tensor_products
from fedspan.linalg.subspaces import with_fixed_signs

#: Rows of a block: large enough for the matrix products, small enough to stay in a CPU's cache.
BLOCK_ROWS = 1024
#: The same on a GPU: large enough to keep it busy.
CARD_BLOCK_ROWS = 65536
#: Rows times landmarks of a block there, at least: few large products take less time than many small ones.
_CARD_CELLS = 2**26
_CARD_PART = 1024
#: Eigenvalues of W below this share of the largest one are rounding.
THINNEST = 1e-8


def squared_norms(X: Array) -> Array:
    """Return ``||x_i||^2`` (n,), in the precision of X."""
    return namespace(X).vecdot(X, X)


def squared_distances(X: Array, Y: Array, norms: Array | None = None) -> Array:
    """Return ``||x_i - y_j||^2`` (n, n_y), never negative, in the precision of X; `norms` are those of X's rows."""
    own = squared_norms(X) if norms is None else norms
    if isinstance(X, np.ndarray):
        D: Array = X @ Y.T
        D *= -2
        D += own[:, None]
        D += squared_norms(Y)
        return np.maximum(D, 0, out=D)
    D = X @ (-2 * Y).T  # on a card each pass over all distances counts
    D += own[:, None]
    D += squared_norms(Y)
    return namespace(D).clip(D, min=0)


def kernel_pull(
    X: Array, Y: Array, gamma: float, norms: Array | None = None, *, single: bool = False, rounded: bool = False
) -> tuple[NDArray[Any], float]:
    """Return the pull of the rows of X on the landmarks Y, and the sum of the kernel.

    The pull is ``A_j = sum_i k(x_i, y_j) (x_i - y_j)`` (n_y, m); the gradient of the sum is ``2 gamma A``. Products are
    in the precision of X (n, m), float32 or float64, and on its device, where Y (n_y, m) must be. `norms` are
    ``||x_i||^2`` (n,), if known. The pull is summed in double precision, and returned so unless `single`.
    With `rounded` the rows are in single precision, and rounded for a GPU's tensor cores
    (`fedspan.linalg.kernels.tensor_cores`), which compute the products.
    O(n n_y m) time, `BLOCK_ROWS` times n_y memory beyond the result.
    """
    xp, kernel = namespace(X), rounded_kernel if rounded else kernel_matrix
    Y = xp.asarray(Y, dtype=X.dtype)
    norms = squared_norms(X) if norms is None else norms
    size = BLOCK_ROWS if on_processor(X) else max(CARD_BLOCK_ROWS, _CARD_CELLS // max(1, len(Y)))
    pull = xp.zeros(Y.shape, dtype=xp.float64, device=X.device)
    mass = xp.zeros(len(Y), dtype=xp.float64, device=X.device)
    with tensor_products() if rounded else nullcontext():
        for start in range(0, len(X), size):
            part = slice(start, start + size)
            K = kernel(X[part], Y, gamma, norms[part])
            pull += K.T @ X[part]
            mass += _column_sums(K)
    pull -= mass[:, None] * Y
    return to_numpy(xp.asarray(pull, dtype=xp.float32) if single else pull), float(xp.sum(mass))


def _column_sums(K: Array) -> Array:
    """Return the sums of columns in double precision; on a GPU first over parts, without a copy of K in double."""
    xp = namespace(K)
    if on_processor(K):
        return xp.sum(K, axis=0, dtype=xp.float64)
    end = len(K) // _CARD_PART * _CARD_PART
    parts = xp.sum(xp.reshape(K[:end], (-1, _CARD_PART, K.shape[1])), axis=1)
    return xp.sum(parts, axis=0, dtype=xp.float64) + xp.sum(K[end:], axis=0, dtype=xp.float64)


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

    O((n + n_y)^2 m) time, in blocks. It needs all rows in one place; `characteristic` estimates it in a federation.

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

    The mean square of the difference of two such means is an unbiased estimate of `mmd2`, with a relative error of
    about ``sqrt(2 / count)``.
    """
    xp = namespace(X)
    total = xp.zeros((2, len(W)), dtype=xp.float64, device=X.device)
    W = xp.asarray(W, dtype=X.dtype)
    size = BLOCK_ROWS if on_processor(X) else CARD_BLOCK_ROWS
    for start in range(0, len(X), size):
        angles = X[start : start + size] @ W.T
        total[0] += xp.sum(xp.cos(angles), axis=0, dtype=xp.float64)
        total[1] += xp.sum(xp.sin(angles), axis=0, dtype=xp.float64)
    return to_numpy(total)


@dataclass(frozen=True)
class SpectralFactor:
    """The leading eigenvectors of ``D^-1/2 K_hat D^-1/2``, and what gives new rows their coordinates.

    `eigenvalues` (k,) descend from at most 1, `vectors` (n, k) are orthonormal. A row with kernel values ``kappa``
    (n_y,) has the degree ``kappa @ degrees`` and the coordinates ``kappa @ axes / sqrt(degree)``: `spectral_places`.
    """

    eigenvalues: Matrix
    vectors: Matrix
    axes: Matrix
    degrees: Matrix


def spectral_factor(K: Array, W: Array, k: int) -> SpectralFactor:
    """Return the k leading eigenpairs of the normalised Nystrom kernel.

    K (n, n_y) is the kernel of rows and landmarks, W (n_y, n_y) that of the landmarks. O(n n_y^2) time; memory is one
    array of the size of K.
    """
    values, vectors = np.linalg.eigh(np.asarray(W, dtype=np.float64))
    kept = values > THINNEST * values[-1]
    whole_number("k", k, 1, int(kept.sum()), why=", the rank of the landmarks' kernel")
    root = vectors[:, kept] / np.sqrt(values[kept])
    F = K @ root
    degrees = root @ F.sum(axis=0)
    G = F
    G /= _roots(K @ degrees)[:, None]
    spectrum, axes = np.linalg.eigh(G.T @ G)
    top = slice(None, -k - 1, -1)
    spectrum, axes = spectrum[top], with_fixed_signs(axes[:, top])
    axes = axes / np.sqrt(np.maximum(spectrum, np.finfo(float).tiny))
    return SpectralFactor(spectrum, G @ axes, root @ axes, degrees)


def spectral_places(K: Array, axes: Matrix, degrees: Matrix) -> Matrix:
    """Return the coordinates (n, k) of rows with kernel values K (n, n_y), from a factor's `axes` and `degrees`."""
    return np.asarray((K @ axes) / _roots(K @ degrees)[:, None])


def _roots(degrees: Matrix) -> Matrix:
    """Return the roots of degrees, kept above 0: K_hat may have negative entries, and a far row has no degree."""
    least = 1e-12 * max(float(degrees.max(initial=0.0)), np.finfo(float).tiny * 1e12)
    return np.asarray(np.sqrt(np.maximum(degrees, least)))
