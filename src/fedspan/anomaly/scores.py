"""Anomaly scores of rows, as transforms: sites score their own rows, and detectors score new ones with the same code.

Rows x are standardised to ``z = (x - mean) / scale`` and scored in blocks that fit a processor's cache, in double
precision whatever the data's. The mean may be large, so it is subtracted first; the scale is folded into the matrices
that z is multiplied with. Scores that overflow are infinite: as anomalous as can be.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedspan.arrays import Array
from fedspan.federation import transform
from fedspan.federation.site.parameters import Matrix, NotNegative, Vector

_BLOCK_BYTES = 2**18
#: Below this part of ||z||^2 the difference ||z||^2 - ||U'z||^2 has lost digits, and the residual itself is taken.
CANCELLED = 1e-5
_LARGEST = 1e150


@transform("anomaly.subspace_score")
def subspace_score(
    X: Array, mean: Vector, scale: Vector | None, components: Matrix, inside: Vector | None, outside: NotNegative
) -> Matrix:
    """Return ``sum_j inside_j (u_j'z)^2 + outside ||(I - U U')z||^2`` (n, 1), U' being `components` (k, d).

    `inside` is (k,), or ``None`` where only the residual counts.
    """
    residuals = residual_function(mean, scale, components)

    def score(x: Array, D: Matrix) -> Vector:
        T, residual = residuals(x, D)
        residual *= outside
        return residual if inside is None else residual + np.square(T, out=T) @ inside

    return in_blocks(X, mean, score)


def residual_function(
    mean: Vector, scale: Vector | None, components: Matrix
) -> Callable[[Array, Matrix], tuple[Matrix, Vector]]:
    """Return a function of rows and ``x - mean``, which changes: ``U'z`` (n, k) and ``||(I - U U')z||^2`` (n,)."""
    U, weight = folded(components, scale), np.ones(len(mean)) if scale is None else scale**-2.0

    def residuals(x: Array, D: Matrix) -> tuple[Matrix, Vector]:
        T = D @ U
        whole = np.square(D, out=D) @ weight
        residual: Vector = whole - np.vecdot(T, T)
        lost = ~(residual > CANCELLED * whole)  # also where it is not a number
        if lost.any():
            Z = standardized(x[lost], mean, scale)
            R = Z - (Z @ components.T) @ components
            residual[lost] = np.vecdot(R, R)
        return T, residual

    return residuals


@transform("anomaly.whitened_score")
def whitened_score(X: Array, mean: Vector, scale: Vector | None, root: Matrix) -> Matrix:
    """Return ``||root z||^2`` (n, 1); `root` (d, d) is symmetric."""
    factor = folded(root, scale)

    def score(x: Array, D: Matrix) -> Vector:
        W = D @ factor
        return np.asarray(np.vecdot(W, W))

    return in_blocks(X, mean, score)


def folded(rows: Matrix, scale: Vector | None) -> Matrix:
    """Return the matrix (d, k) that ``x - mean`` is multiplied with for the products of z with `rows` (k, d)."""
    return np.ascontiguousarray((rows if scale is None else rows / scale).T)


def one_subspace_score(
    x: Vector, mean: Vector, scale: Vector | None, components: Matrix, inside: Vector | None, outside: float
) -> float:
    """Return `subspace_score` of one row (d,), without the overhead of blocks; NaN where that is infinite."""
    z = standardized(x, mean, scale)
    t = components @ z
    whole = float(z @ z)
    residual = whole - float(t @ t)
    if not residual > CANCELLED * whole:
        r = z - t @ components
        residual = float(r @ r)
    return outside * residual + (0.0 if inside is None else float(inside @ (t * t)))


def one_whitened_score(x: Vector, mean: Vector, scale: Vector | None, root: Matrix) -> float:
    """Return `whitened_score` of one row (d,), without the overhead of blocks; NaN where that is infinite."""
    w = root @ standardized(x, mean, scale)
    return float(w @ w)


def subspace_shares(
    X: Array, mean: Vector, scale: Vector | None, components: Matrix, inside: Vector | None, outside: float
) -> Matrix:
    """Return the features' shares (n, d) of `subspace_score`, by the symmetric root of its quadratic form."""
    Z = _bounded(X, mean, scale)
    T = Z @ components.T
    W = np.sqrt(outside) * (Z - T @ components)
    return _shares(W if inside is None else W + (T * np.sqrt(inside)) @ components)


def whitened_shares(X: Array, mean: Vector, scale: Vector | None, root: Matrix) -> Matrix:
    """Return the features' shares (n, d) of `whitened_score`."""
    return _shares(_bounded(X, mean, scale) @ root)


def _bounded(X: Array, mean: Vector, scale: Vector | None) -> Matrix:
    """Return standardised rows, cut so that their products with matrices do not overflow."""
    with np.errstate(over="ignore"):
        return np.clip(standardized(X, mean, scale), -_LARGEST, _LARGEST)


def _shares(W: Matrix) -> Matrix:
    """Return the share of every entry in the squared length of its row; 0 where that is 0."""
    largest = np.abs(W).max(axis=1, keepdims=True)
    W = W / np.where(largest > 0, largest, 1.0)  # squares that do not overflow
    return np.asarray(W**2 / np.maximum(np.vecdot(W, W), 1.0)[:, None])


def standardized(x: Array, mean: Vector, scale: Vector | None) -> Matrix:
    """Return standardised rows, or a single one."""
    z: Matrix = np.asarray(x, dtype=np.float64) - mean
    if scale is not None:
        z /= scale
    return z


def in_blocks(X: Array, mean: Vector, score: Callable[[Array, Matrix], Vector]) -> Matrix:
    """Return ``score(x, x - mean)`` (n, 1) of all rows, block by block; it may overwrite its second argument."""
    size = max(1, _BLOCK_BYTES // (8 * max(1, X.shape[1])))
    found = np.empty((len(X), 1))
    buffer = np.empty((min(size, len(X)), X.shape[1]))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for start in range(0, len(X), size):
            x = X[start : start + size]
            found[start : start + size, 0] = score(x, np.subtract(x, mean, out=buffer[: len(x)]))
    found[np.isnan(found)] = np.inf  # differences of numbers that overflowed
    return found
