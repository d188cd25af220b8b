"""L subspaces as L points: the inner products of their projectors, from r x r blocks of overlaps.

A projector ``P_l = U_l U_l'`` is n x n and never formed: ``<P_i, P_j> = ||U_i' U_j||_F^2`` comes from one product of
the stacked n x Lr matrix with itself, in blocks of rows. Subspaces that agree to 1e-8 have no distance in that form.
For them the same product is made of residuals: with ``U_j = U_p M_j + N_j`` about a reference p,

    <P_j - P_p, P_k - P_p> = <E_j, E_k> + 2 <M_j' M_k, N_j' N_k> + ||N_j' N_k||_F^2,    E_j = I - M_j M_j',

in which every term is as small as the distances themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np

from fedspan.linalg.medians.median_certificate import Array, rounding

ROWS = 256  # of the stacked matrix at a time: keeps its copy small and the rounding error of long sums, too
COLUMNS = 16  # of the reference at a time, for the same reason


@dataclass(frozen=True)
class Geometry:
    """Where the projectors are, seen from one of them, and how well that is known.

    Attributes
    ----------
    gram : (L, L) array
        ``<P_j - P_p, P_k - P_p>`` for a reference p.
    error : (L, L) array
        Bound of the rounding error of `gram`, entry by entry.
    tolerance : float
        Distances below this are not known to differ from 0.
    """

    gram: Array
    error: Array
    tolerance: float


def orthonormality_defect(bases: Array) -> tuple[Array, Array, float]:
    """Return ``U_l' U_l`` (L, r, r), how far each is from I (L,), and a bound of the rounding error of that."""
    L, n, r = bases.shape
    inner = np.zeros((L, r, r))
    for rows in _slices(n, isqrt(n)):
        inner += bases[:, rows].transpose(0, 2, 1) @ bases[:, rows]
    return inner, np.linalg.norm(inner - np.eye(r), axis=(1, 2)), 2.0 * r * _short_sums(n)


def overlap_geometry(bases: Array, defect: float) -> tuple[Geometry, Array | None]:
    """Compute all distances from the overlaps ``||U_i' U_j||_F^2``, good while no two subspaces nearly agree.

    Also returns the Lr x Lr matrix of overlaps, unless it is larger than the bases themselves.

    Parameters
    ----------
    bases : (L, n, r) array
    defect : float
        Bound of ``||U_l' U_l - I||_F``.
    """
    L, n, r = bases.shape
    overlap = np.empty((L, L))
    inner: Array | None = None
    for sites in _site_chunks(L, n, r):
        inner = _inner_products(_stacked_rows(bases), L, r, sites)
        overlap[sites] = _sum_blocks(inner * inner, r)
    overlap = (overlap + overlap.T) / 2.0
    squared = 2.0 * (r - overlap)
    np.fill_diagonal(squared, 0.0)
    reference = int(np.argmin(np.sqrt(np.maximum(squared, 0.0)).sum(axis=1)))
    gram = (squared[reference][:, None] + squared[reference] - squared) / 2.0
    error = 6.0 * sqrt(r) * (r * _long_sums(n) + defect)
    return Geometry(
        gram, _error_about(reference, np.full((L, L), error)), 2.0 * sqrt(error)
    ), inner if L * r <= n else None


def residual_geometry(bases: Array, defect: float, reference: int) -> Geometry:
    """Compute the inner products about a reference from the residuals N_j; those near to it keep all their digits.

    Parameters
    ----------
    bases : (L, n, r) array
    defect : float
        Bound of ``||U_l' U_l - I||_F``.
    reference : int
    """
    L, n, r = bases.shape
    U = bases[reference]
    M = np.zeros((r, L * r))
    for rows, stacked in _stacked_rows(bases, isqrt(n)):
        M += U[rows].T @ stacked
    gram = np.empty((L, L))
    for sites in _site_chunks(L, n, r):
        inner = _inner_products(_residual_rows(bases, U, M), L, r, sites)
        here = slice(sites.start * r, sites.stop * r)
        gram[sites] = _sum_blocks(inner * (2.0 * (M[:, here].T @ M) + inner), r)
    blocks = M.reshape(r, L, r).transpose(1, 0, 2)
    E = (np.eye(r) - blocks @ blocks.transpose(0, 2, 1)).reshape(L, -1)
    gram = (gram + gram.T) / 2.0 + E @ E.T
    gram[reference], gram[:, reference] = 0.0, 0.0

    # U_j = U M_j + N_j + a rounding error: its size, then the relative errors of everything after it
    weight = np.abs(U).T @ np.abs(U)
    product = np.sqrt(np.sum(np.abs(M) * (weight @ np.abs(M)), axis=0).reshape(L, r).sum(axis=1))
    moved = sqrt(2.0) * rounding(COLUMNS + r // COLUMNS + 5) * (product + sqrt(r))
    defect = defect + r * _short_sums(n)
    relative = 8.0 * defect + 4.0 * _long_sums(n) + 8.0 * rounding(L + r)
    size = np.sqrt(np.diagonal(gram))
    cross = np.outer(size, moved) + 3.0 * defect * np.linalg.norm(E, axis=1)
    error = relative * np.outer(size, size) + cross + cross.T + np.outer(moved, moved) + 10.0 * defect**2
    return Geometry(gram, _error_about(reference, error), 4.0 * float(moved.max()) + 2.0 * defect)


def weighted_rows(bases: Array, coefficients: Array) -> Array:
    """Return ``sum_l U_l C_l`` for coefficients C stacked to (Lr, k), block by block."""
    out = np.empty((bases.shape[1], coefficients.shape[1]))
    for rows, stacked in _stacked_rows(bases):
        out[rows] = stacked @ coefficients
    return out


def _error_about(reference: int, error: Array) -> Array:
    error[reference], error[:, reference] = 0.0, 0.0  # the reference is where it is
    return error


def _slices(length: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, length)) for start in range(0, length, width))


def _site_chunks(L: int, n: int, r: int) -> Iterator[slice]:
    """All sites at once, or so many that their overlaps take no more room than the bases."""
    return _slices(L, max(1, n // r))


def _stacked_rows(bases: Array, width: int = ROWS) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows of the n x Lr matrix ``[U_1, ..., U_L]``."""
    L, n, r = bases.shape
    for rows in _slices(n, width):
        yield rows, np.ascontiguousarray(bases[:, rows].transpose(1, 0, 2)).reshape(-1, L * r)


def _residual_rows(bases: Array, U: Array, M: Array) -> Iterator[tuple[slice, Array]]:
    for rows, stacked in _stacked_rows(bases):
        for columns in _slices(U.shape[1], COLUMNS):
            np.subtract(stacked, U[rows, columns] @ M[columns], out=stacked)
        yield rows, stacked


def _inner_products(blocks: Iterator[tuple[slice, Array]], L: int, r: int, sites: slice) -> Array:
    """Inner products of the columns of some sites with those of all, a (chunk r) x Lr matrix."""
    total = np.zeros(((sites.stop - sites.start) * r, L * r))
    for _, rows in blocks:
        total += rows[:, sites.start * r : sites.stop * r].T @ rows
    return total


def _sum_blocks(matrix: Array, r: int) -> Array:
    rows, columns = matrix.shape
    return np.asarray(matrix.reshape(rows // r, r, columns // r, r).sum(axis=(1, 3)))


def _long_sums(n: int) -> float:
    return rounding(min(n, ROWS) + -(-n // ROWS) + 4)


def _short_sums(n: int) -> float:
    return rounding(isqrt(n) + -(-n // isqrt(n)) + 4)
