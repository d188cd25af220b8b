"""Anomaly scores of rows, as lenses: sites score their own rows, and detectors score new ones with the same code.

Rows are standardised to z and scored in blocks that fit a processor's cache, in double precision whatever the data's.
Scores that overflow are infinite: as anomalous as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import lens

Array = NDArray[Any]
Matrix = NDArray[np.float64]

_BLOCK_BYTES = 2**18
#: Below this part of ||z||^2 the difference ||z||^2 - ||U'z||^2 has lost digits, and the residual itself is taken.
CANCELLED = 1e-3


@lens
def subspace_score(
    X: Array, mean: Matrix, scale: Matrix | None, components: Matrix, inside: Matrix | None, outside: float
) -> Matrix:
    """Return ``sum_j inside_j (u_j'z)^2 + outside ||(I - U U')z||^2`` (n, 1), U' being `components` (k, d).

    `inside` is (k,), or ``None`` where only the residual counts.
    """
    U = np.ascontiguousarray(components.T)

    def score(Z: Matrix) -> Matrix:
        T = Z @ U
        whole, found = np.vecdot(Z, Z), np.vecdot(T, T)
        residual = whole - found
        lost = ~(residual > CANCELLED * whole)  # also where it is not a number
        if lost.any():
            R = Z[lost] - T[lost] @ components
            residual[lost] = np.vecdot(R, R)
        residual *= outside
        return np.asarray(residual if inside is None else residual + (T * T) @ inside)

    return _in_blocks(X, mean, scale, score)


@lens
def whitened_score(X: Array, mean: Matrix, scale: Matrix | None, root: Matrix) -> Matrix:
    """Return ``||root z||^2`` (n, 1); `root` (d, d) is symmetric."""

    def score(Z: Matrix) -> Matrix:
        W = Z @ root
        return np.asarray(np.vecdot(W, W))

    return _in_blocks(X, mean, scale, score)


def standardized(x: Array, mean: Matrix, scale: Matrix | None) -> Matrix:
    """Return rows, or a single one, as the scores see them."""
    z: Matrix = np.asarray(x, dtype=np.float64) - mean
    if scale is not None:
        z /= scale
    return z


def _in_blocks(X: Array, mean: Matrix, scale: Matrix | None, score: Callable[[Matrix], Matrix]) -> Matrix:
    found = np.empty((len(X), 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, Z in _standardized_blocks(X, mean, scale):
            found[rows, 0] = score(Z)
    found[np.isnan(found)] = np.inf  # differences of numbers that overflowed
    return found


def _standardized_blocks(X: Array, mean: Matrix, scale: Matrix | None) -> Iterator[tuple[slice, Matrix]]:
    """Yield the rows of each block and their standardised values, which the next block overwrites."""
    size = max(1, min(len(X), _BLOCK_BYTES // (8 * max(1, X.shape[1]))))
    # As whole blocks, so that numpy goes through each of them in one sweep.
    centre = np.tile(mean, (size, 1))
    width = None if scale is None else np.tile(scale, (size, 1))
    buffer = np.empty((size, X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        n = len(X[rows])
        Z = np.subtract(X[rows], centre[:n], out=buffer[:n])
        if width is not None:
            np.divide(Z, width[:n], out=Z)
        yield rows, Z
