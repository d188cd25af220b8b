"""The geometric median of L vectors of any dimension, from one L x L Gram matrix, with a proven certificate.

Two sweeps over the vectors: their Gram matrix about a reference among them, and the weighted sum. The second sweep
also *measures* the distances to the point that it makes. The certificate rests on these alone: the gap is true whatever
went wrong before. If it is not small, the reference was a bad choice: both sweeps are repeated about the vector nearest
to the median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedspan.arrays import Floats
from fedspan.errors import InputError
from fedspan.linalg.medians.centred_points import (
    Frame,
    Vectors,
    central_vector,
    differences,
    frame_about,
    rounding_of_sums,
    scale_rows,
)
from fedspan.linalg.medians.median_certificate import UNIT_ROUNDOFF, gap_bound, reach, rounding
from fedspan.linalg.medians.median_solver import FermatPoint, at_vertex, fermat_point

GOOD_GAP = 1e-11  # relative: a larger gap is worth another reference
MAX_REFERENCES = 3
SAME = 1e-120  # in units of a frame: vectors closer than this coincide, their squared distance may underflow


@dataclass(frozen=True)
class GeometricMedianResult:
    """The result of `geometric_median`.

    Attributes
    ----------
    point : (d,) array
        The geometric median, float64.
    weights : (L,) array
        Non-negative, sum to 1: ``point = weights @ points``. When the median is a data point, all of it is on that
        point, or shared by its duplicates in proportion to the caller's weights.
    distances : (L,) array
        From each point to `point`.
    gap : float
        Proven bound on ``f(point) - min f`` where ``f(z) = sum_l w_l ||x_l - z||`` in the caller's weights, neither
        normalised nor averaged (all 1 when none were given). It includes every rounding error.
    """

    point: Floats
    weights: Floats
    distances: Floats
    gap: float


def geometric_median(points: ArrayLike, weights: ArrayLike | None = None) -> GeometricMedianResult:
    """Minimise the weighted sum of Euclidean distances to `points`.

    The minimiser need not be unique (an even number of points on a line, two points of equal weight). Then the midpoint
    of the segment of minimisers is returned. Two points of unequal weight have the heavier one as their median. A
    median that is a data point is returned exactly.

    Parameters
    ----------
    points : (L, d) array
        Finite, and less than 1e300 apart. float32 is accepted and accumulated in float64.
    weights : (L,) array, optional
        Non-negative, not all 0. Default: all 1.

    Notes
    -----
    Time O(L^2 d + L^3). Memory beyond the input: O(L^2 + d) and one block of differences, 1 MB for L <= 64.

    Examples
    --------
    >>> result = geometric_median([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]])
    >>> result.point                  # the Fermat point: all sides appear at 120 degrees
    array([1. , 0.57735027])
    >>> bool(result.gap < 1e-13)
    True
    >>> geometric_median([[1.0], [2.0], [3.0], [1e150]]).point
    array([2.5])
    """
    X, w, weight_scale = _validated(points, weights)
    reference = central_vector(X, w)
    frame = frame_about(X, w, reference)
    best = _measured(X, w, frame, _solve(frame, w))
    for _ in range(MAX_REFERENCES - 1):
        nearest = int(np.argmin(np.where(w > 0.0, best.distances, np.inf)))
        if nearest == reference or _is_good(best, w):
            break
        reference, frame = nearest, frame_about(X, w, nearest)
        best = min(best, _measured(X, w, frame, _solve(frame, w)), key=lambda result: result.gap)
    if not _is_good(best, w):  # perhaps float64 has no better point near the reference than the reference itself
        vertex = at_vertex(frame.coordinates, w, reference, SAME)
        best = min(best, _measured(X, w, frame, vertex), key=lambda result: result.gap)
    return GeometricMedianResult(best.point, best.weights, best.distances, float(best.gap * weight_scale))


def _validated(points: ArrayLike, weights: ArrayLike | None) -> tuple[Vectors, Floats, float]:
    try:
        X = np.asarray(points)
    except ValueError as error:
        raise InputError("points must be an (L, d) array, but its rows are not all of one length") from error
    if X.ndim != 2 or X.size == 0:
        raise InputError(f"points must be an (L, d) array with at least one row and column, not of shape {X.shape}")
    if X.dtype.kind not in "fiu":
        raise InputError(f"points must be real numbers, not of type {X.dtype}")
    if X.dtype != np.float32:
        X = X.astype(np.float64, copy=False)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(X),):
        raise InputError(f"weights must have one entry for each of the {len(X)} points, not shape {w.shape}")
    if not (np.isfinite(w).all() and (w >= 0.0).all() and (w > 0.0).any()):
        raise InputError("weights must be finite and not negative, and at least one of them positive")
    scale = float(np.ldexp(1.0, int(np.frexp(w.max())[1]) - 1))  # a power of two: the problem stays exactly the same
    return X, w / scale, scale


def _solve(frame: Frame, weights: Floats) -> FermatPoint:
    """Return the Fermat point of the vectors that have a weight; the others neither pull nor coincide."""
    present = np.flatnonzero(weights)
    found = fermat_point(frame.coordinates[present], weights[present], SAME)
    pulls, coincide = np.zeros(len(weights)), np.zeros(len(weights), dtype=bool)
    pulls[present], coincide[present] = found.pulls, found.coincide
    return FermatPoint(pulls, coincide, int(present[found.nearest]))


def _measured(points: Vectors, weights: Floats, frame: Frame, solution: FermatPoint) -> GeometricMedianResult:
    """Compute the point ``z = sum a_l x_l``, and in the same sweep the distances for its certificate.

    The sum is ``z' = x_q + s`` with q the nearest vector, so that s has all its digits. z is z' rounded to float64.
    The difference of the two is known exactly.
    """
    L, d = points.shape
    at_data_point = bool(solution.coincide.any())
    share = np.where(solution.coincide, weights, 0.0) if at_data_point else solution.pulls * frame.shrink
    share = share / share.sum()
    pulls = solution.pulls * frame.stretch  # of the scaled differences: y_l = pulls_l scale_l (x_l - z')

    centre = points[solution.nearest].astype(np.float64)
    s, point, rest = np.zeros(d), np.empty(d), np.empty(d)
    square, residual_square = np.zeros(L), 0.0
    for block, V in differences(points, centre):
        if not at_data_point:
            s[block] = share @ V
            np.subtract(V, s[block], out=V)
        point[block], rest[block] = _exact_sum(centre[block], s[block])
        scale_rows(V, frame.row_scale)
        square += np.vecdot(V, V)
        residual_square += float(np.sum((pulls @ V) ** 2))

    size, shift = np.sqrt(square), _norm(rest)  # of the scaled x_l - z', and of z - z'
    for row in np.flatnonzero(square < 1e-290):  # some of it was lost to underflow
        size[row] = _norm(points[row] - centre - s) * frame.row_scale[row]
    distances = size / frame.row_scale
    for row in np.flatnonzero(distances <= 1e13 * shift):  # so near that rounding z' to z matters
        distances[row] = _norm(points[row] - point)
    # To each measured number, add the largest rounding error that it can have.
    relative = rounding_of_sums(L, d)
    moved, shift = _norm(s) * (1.0 + relative), shift * (1.0 + relative)
    error = relative * size + 4.0 * UNIT_ROUNDOFF * (size + frame.row_scale * moved)
    low, high = np.maximum(size - error, 0.0), size + error
    residual = float(np.sqrt(residual_square)) * (1.0 + relative)
    residual += rounding(L + 8) * float(pulls @ (high + frame.row_scale * moved))
    present = weights > 0.0
    bounds = (low / frame.row_scale)[present], (high / frame.row_scale)[present]
    dual = (pulls * low)[present], (pulls * high)[present]
    gap = gap_bound(weights[present], bounds, dual, residual, solution.coincide[present], shift)
    return GeometricMedianResult(point, share, distances, gap)


def _exact_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return ``a + b`` rounded, and its rounding error: both together are the exact sum (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _norm(vector: Floats) -> float:
    largest = float(np.abs(vector).max())
    return largest * float(np.linalg.norm(vector / largest)) if largest > 0.0 else 0.0


def _is_good(result: GeometricMedianResult, weights: Floats) -> bool:
    """Return whether the gap is small beside what the median's own neighbourhood adds to f, without outliers."""
    present = weights > 0.0
    return bool(result.gap <= GOOD_GAP * weights.sum() * reach(result.distances[present], weights[present]))
