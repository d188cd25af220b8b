"""L projectors as L points: their inner products, from r x r blocks of overlaps, and the median that these give.

A projector ``P_l = U_l U_l'`` is n x n and never formed: ``<P_i, P_j> = ||U_i' U_j||_F^2`` comes from one product of
the stacked n x Lr matrix with itself, in blocks of rows. Subspaces that agree to 1e-8 have no distance in that form.
For them the same product is made of residuals: with ``U_j = U_p M_j + N_j`` about a reference p,

    <P_j - P_p, P_k - P_p> = <E_j, E_k> + 2 <M_j' M_k, N_j' N_k> + ||N_j' N_k||_F^2,    E_j = I - M_j M_j',

in which every term is as small as the distances themselves.

Very many projectors of few columns are smaller than their inner products: these are L points of n (n + 1) / 2 numbers.
10,000 sites of 20 columns would need minutes and gigabytes for L x L inner products and L^3 steps; their projectors are
210 numbers each. Only distances below 1e-8 are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.linalg.medians.majority_ball import Block, Blocks, Rows
from fedspan.linalg.medians.median_certificate import UNIT_ROUNDOFF, cluster_gap_bound, gap_bound, rounding
from fedspan.linalg.medians.median_solver import fermat_point, isometric_coordinates
from fedspan.linalg.medians.vector_median import geometric_median

ROWS = 256  # of the stacked matrix at a time: keeps its copy and the rounding error of long sums small
COLUMNS = 16  # of the reference at a time, for the same reason
MAX_REFERENCES = 2  # geometries from residuals, when the one from overlaps is not sharp
MANY = 300  # sites: with fewer, inner products cost little and give more digits
SITES = 1024  # whose projectors are square at a time
DISTANCES = 64  # sites whose distances to all others are held at a time
GOOD_GAP = 5e-11  # of the objective
SHARP = 1e-8  # relative error of a distance


@dataclass(frozen=True)
class Geometry:
    """The projectors about one of them, and how well that is known.

    `gram` (L, L) holds ``<P_j - P_p, P_k - P_p>`` for a reference p, and `error` bounds the rounding errors of its
    entries. Distances below `tolerance` are not known to differ from 0.
    """

    gram: Floats
    error: Floats
    tolerance: float


@dataclass(frozen=True)
class ProjectorMedian:
    """The median ``sum_l weights[l] P_l``, and what is known of it.

    `low` and `high` bound the `distances` (L,), rounding errors included. `gap` bounds ``f - min f``, all sites having
    the weight 1. `nearest` is the site nearest to the median.
    """

    weights: Floats
    distances: Floats
    low: Floats
    high: Floats
    gap: float
    nearest: int

    def is_sharp(self) -> bool:
        """Return whether the gap is small and every distance known well: if not, a finer geometry may help."""
        known = self.high - self.low <= SHARP * self.high
        return bool(self.gap <= GOOD_GAP * self.distances.sum() and known.all())


def orthonormality_defect(bases: Floats) -> tuple[Floats, Floats, float]:
    """Return ``U_l' U_l`` (L, r, r), how far each is from I (L,), and a bound of the rounding error of that."""
    L, n, r = bases.shape
    inner = np.zeros((L, r, r))
    for rows in _slices(n, isqrt(n)):
        inner += bases[:, rows].transpose(0, 2, 1) @ bases[:, rows]
    return inner, np.linalg.norm(inner - np.eye(r), axis=(1, 2)), 2.0 * r * _short_sums(n)


def overlap_geometry(bases: Floats, defect: float) -> tuple[Geometry, Floats | None]:
    """Compute all distances of `bases` (L, n, r) from their overlaps: good while no two subspaces nearly agree.

    `defect` bounds ``||U_l' U_l - I||_F``. Also returns the Lr x Lr matrix of overlaps, unless it is larger than the
    bases themselves.
    """
    L, n, r = bases.shape
    overlap = np.empty((L, L))
    inner: Floats | None = None
    for sites in _site_chunks(L, n, r):
        inner = _inner_products(_stacked_rows(bases), L, r, sites)
        overlap[sites] = _sum_blocks(inner * inner, r)
    overlap = (overlap + overlap.T) / 2.0
    squared = 2.0 * (r - overlap)
    np.fill_diagonal(squared, 0.0)
    reference = int(np.argmin(np.sqrt(np.maximum(squared, 0.0)).sum(axis=1)))
    gram = (squared[reference][:, None] + squared[reference] - squared) / 2.0
    error = 6.0 * sqrt(r) * (r * _long_sums(n) + defect)
    geometry = Geometry(gram, _error_about(reference, np.full((L, L), error)), 2.0 * sqrt(error))
    return geometry, inner if L * r <= n else None


def residual_geometry(bases: Floats, defect: float, reference: int) -> Geometry:
    """Compute the inner products about a reference from the residuals N_j: points near to it keep all their digits."""
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


def weighted_rows(bases: Floats, coefficients: Floats) -> Floats:
    """Return ``sum_l U_l C_l`` for coefficients C stacked to (Lr, k), block by block."""
    out = np.empty((bases.shape[1], coefficients.shape[1]))
    for rows, stacked in _stacked_rows(bases):
        out[rows] = stacked @ coefficients
    return out


def median_of_projectors(geometry: Geometry) -> ProjectorMedian:
    """Find the median, then certify it with distances whose errors are bounded by those of the geometry."""
    gram, L = geometry.gram, len(geometry.gram)
    gram_error = geometry.error + 4.0 * (L + 4) * UNIT_ROUNDOFF * np.abs(gram)
    ones = np.ones(L)
    solution = fermat_point(isometric_coordinates(gram), ones, geometry.tolerance)
    at_site = bool(solution.coincide.any())
    share = np.eye(L)[solution.nearest] if at_site else solution.pulls / solution.pulls.sum()
    weights = solution.coincide / solution.coincide.sum() if at_site else share

    def squared_norms(coefficients: Floats) -> tuple[Floats, Floats]:
        """Return those of the rows' combinations of projectors (coefficients sum to 0), and bounds of the errors."""
        size = np.abs(coefficients)
        squares = np.einsum("ij,ij->i", coefficients @ gram, coefficients)
        return squares, np.einsum("ij,ij->i", size @ gram_error, size)

    square, error = squared_norms(np.eye(L) - share)
    low, high = np.sqrt(np.maximum(square - error, 0.0)), np.sqrt(np.maximum(square + error, 0.0))

    def pull_of(sites: NDArray[np.bool_]) -> float:
        pulls = np.where(sites, solution.pulls, 0.0)
        pull, pull_error = squared_norms((pulls - pulls.sum() * share)[None, :])
        return float(np.sqrt(max(0.0, pull[0] + pull_error[0])))

    dual = solution.pulls * low * (1.0 - 1e-15), solution.pulls * high * (1.0 + 1e-15)
    residual = pull_of(~solution.coincide)
    gap = gap_bound(ones, (low, high), dual, residual, solution.coincide, float(weights @ high) if at_site else 0.0)
    if not at_site:
        ordered = np.sort(high)
        cluster = high <= ordered[int(np.argmax(ordered[1:] / ordered[:-1]))]  # the sites before the largest jump
        gap = min(gap, cluster_gap_bound(ones, high, dual, residual, cluster, pull_of(~cluster)))
    return ProjectorMedian(weights, np.sqrt(np.maximum(square, 0.0)), low, high, gap, solution.nearest)


def median_of(bases: Floats, defect: float) -> tuple[ProjectorMedian, Floats | None, Blocks]:
    """Return the median, by the method that suits the numbers of sites and columns, the overlaps if known, distances.

    `defect` bounds ``||U_l' U_l - I||_F``. The last result yields distances of projectors, in blocks.
    """
    if are_smaller(*bases.shape[:2]):
        return median_of_dense_projectors(bases, defect), None, partial(_dense_distances, bases, defect)
    geometry, inner = overlap_geometry(bases, defect)
    median = median_of_projectors(geometry)
    for _ in range(MAX_REFERENCES):
        if median.is_sharp():
            break
        reference = median.nearest
        geometry = residual_geometry(bases, defect, reference)
        median = median_of_projectors(geometry)
        if median.nearest == reference:
            break
    return median, inner, partial(_distances, geometry)


def _distances(geometry: Geometry, rows: Rows) -> Iterator[Block]:
    """Yield the distances of some projectors to all, from below and from above."""
    gram, error = geometry.gram, geometry.error + 4.0 * UNIT_ROUNDOFF * np.abs(geometry.gram)
    squares, errors = (np.diagonal(one)[rows, None] + np.diagonal(one) for one in (gram, error))
    yield rows, *_bounds(squares - 2.0 * gram[rows], errors + 2.0 * error[rows])


def _dense_distances(bases: Floats, defect: float, rows: Rows) -> Iterator[Block]:
    """Yield the same for many sites of few columns, some rows at a time."""
    _, n, r = bases.shape
    halves = _upper_halves(bases)
    squares = np.einsum("ld,ld->l", halves, halves)
    error = 8.0 * r * (rounding(n * n + 8) + rounding(r + 4) + defect)
    for part in _slices(len(rows), DISTANCES):
        some = rows[part]
        yield some, *_bounds(squares[some, None] + squares - 2.0 * halves[some] @ halves.T, error)


def _bounds(squared: Floats, error: Floats | float) -> tuple[Floats, Floats]:
    return np.sqrt(np.maximum(squared - error, 0.0)), np.sqrt(np.maximum(squared + error, 0.0))


def are_smaller(L: int, n: int) -> bool:
    """Return whether the projectors of many sites are fewer numbers than their inner products."""
    return L > MANY and n * (n + 1) // 2 <= L


def median_of_dense_projectors(bases: Floats, defect: float) -> ProjectorMedian:
    """Find the median of the projectors' upper halves, and certify it with the rounding errors of these.

    Time O(L n^4), memory O(L n^2).
    """
    L, n, r = bases.shape
    found = geometric_median(_upper_halves(bases))
    # An entry of U U' is off by rounding(r) |u_i| |u_j|, all of them together by that times ||U||_F^2. The median's own
    # projector moves by no more than the farthest of them, and by the rounding of its weights' sum.
    moved = rounding(r + 4) * (r + defect * sqrt(r)) + defect
    summed = rounding(L + 8) * float(found.weights @ found.distances)
    slack = 2.0 * moved + summed + rounding(n * n + 8) * found.distances
    return ProjectorMedian(
        weights=found.weights,
        distances=found.distances,
        low=np.maximum(found.distances - slack, 0.0),
        high=found.distances + slack,
        gap=found.gap + L * (3.0 * moved + summed),
        nearest=int(np.argmin(found.distances)),
    )


def _upper_halves(bases: Floats) -> Floats:
    """Return rows with the inner products of the projectors: the diagonal, and sqrt 2 times what is above it."""
    L, n, _ = bases.shape
    rows, columns = np.triu_indices(n)
    scale = np.where(rows == columns, 1.0, sqrt(2.0))
    halves = np.empty((L, len(rows)))
    for start in range(0, L, SITES):
        U = bases[start : start + SITES]
        halves[start : start + SITES] = (U @ U.transpose(0, 2, 1))[:, rows, columns] * scale
    return halves


def _error_about(reference: int, error: Floats) -> Floats:
    error[reference], error[:, reference] = 0.0, 0.0  # the reference is known exactly
    return error


def _slices(length: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, length)) for start in range(0, length, width))


def _site_chunks(L: int, n: int, r: int) -> Iterator[slice]:
    """Yield all sites at once, or as many as have overlaps no larger than the bases."""
    return _slices(L, max(1, n // r))


def _stacked_rows(bases: Floats, width: int = ROWS) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rows of the n x Lr matrix ``[U_1, ..., U_L]``."""
    L, n, r = bases.shape
    for rows in _slices(n, width):
        yield rows, np.ascontiguousarray(bases[:, rows].transpose(1, 0, 2)).reshape(-1, L * r)


def _residual_rows(bases: Floats, U: Floats, M: Floats) -> Iterator[tuple[slice, Floats]]:
    for rows, stacked in _stacked_rows(bases):
        for columns in _slices(U.shape[1], COLUMNS):
            np.subtract(stacked, U[rows, columns] @ M[columns], out=stacked)
        yield rows, stacked


def _inner_products(blocks: Iterator[tuple[slice, Floats]], L: int, r: int, sites: slice) -> Floats:
    """Return the inner products of the columns of some sites with those of all, a (chunk r) x Lr matrix."""
    total = np.zeros(((sites.stop - sites.start) * r, L * r))
    for _, rows in blocks:
        total += rows[:, sites.start * r : sites.stop * r].T @ rows
    return total


def _sum_blocks(matrix: Floats, r: int) -> Floats:
    rows, columns = matrix.shape
    return np.asarray(matrix.reshape(rows // r, r, columns // r, r).sum(axis=(1, 3)))


def _long_sums(n: int) -> float:
    return rounding(min(n, ROWS) + -(-n // ROWS) + 4)


def _short_sums(n: int) -> float:
    return rounding(isqrt(n) + -(-n // isqrt(n)) + 4)
