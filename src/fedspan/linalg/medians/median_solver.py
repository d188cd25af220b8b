"""The Fermat point of a few points: the solver behind both medians.

The geometric median of L points minimises ``f(z) = sum_l w_l ||x_l - z||``. It lies in the convex hull of the
points. The solver therefore works on isometric coordinates of dimension at most L, whatever the dimension of the
points. `fedspan.linalg.medians.median_certificate` measures how good its result is.

References
----------
H. W. Kuhn, "A note on Fermat's problem", Mathematical Programming 4 (1973).
Y. Vardi and C.-H. Zhang, "The multivariate L1-median and associated data depth", PNAS 97 (2000).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.linalg.medians.median_certificate import UNIT_ROUNDOFF

VERTEX_TOLERANCE = 1e-14  # of the total weight: less than this is not enough to leave a data point
TIE_TOLERANCE = 1e-13  # two data points whose objectives differ by less per unit of distance are a tie
MAX_NEWTON = 100
WEISZFELD_STEPS = 3
MANY = 500  # points: their distances from one another would cost more than all the rest
STEPS_TO_VERTEX = 20  # Weiszfeld steps, to find the best of many data points


@dataclass(frozen=True)
class FermatPoint:
    """A minimiser of ``sum_l w_l ||x_l - z||``, described by its optimality conditions.

    `pulls` (L,) are ``w_l / ||x_l - z||``, and 0 for the points that `coincide` with z, which is then a data point.
    `nearest` is the data point nearest to z.
    """

    pulls: Floats
    coincide: NDArray[np.bool_]
    nearest: int


def isometric_coordinates(gram: Floats) -> Floats:
    """Return points (L, k), k <= L, with the inner products `gram` (L, L), each accurate relative to its length.

    The Gram matrix is positive semi-definite up to rounding. It is scaled to a unit diagonal first: a point of length
    1e8 then costs one of length 1e-8 none of its digits.
    """
    length = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    scale = np.where(length > 0.0, length, 1.0)
    values, vectors = scipy.linalg.eigh(gram / scale[:, None] / scale)
    kept = values > len(gram) * UNIT_ROUNDOFF * max(values[-1], 0.0)
    directions = vectors[:, kept] * np.sqrt(values[kept])
    return np.asarray(length[:, None] * directions, dtype=np.float64)


def at_vertex(X: Floats, weights: Floats, vertex: int, tolerance: float = 0.0) -> FermatPoint:
    """Return the data point `vertex` as the solution; points within `tolerance` of it coincide with it."""
    distances = _norms(X - X[vertex])
    coincide = distances <= tolerance
    pulls = np.where(coincide, 0.0, weights / np.where(coincide, 1.0, distances))
    return FermatPoint(pulls, coincide, vertex)


def fermat_point(X: Floats, weights: Floats, tolerance: float = 0.0) -> FermatPoint:
    """Minimise ``sum_l w_l ||x_l - z||`` for points X (L, k) of positive weights.

    One of the points should be the origin, and near to the minimiser: numbers have most digits there. Points within
    `tolerance` of the best data point coincide with it.

    The best data point is tested first (Kuhn). It is the optimum exactly when the others pull on it with no more than
    its own weight. Otherwise a Vardi-Zhang step leaves it, a few Weiszfeld steps follow, then damped Newton steps.
    Where the minimisers form a segment, its midpoint is returned. Of more than 500 points only that one is tested to
    which Weiszfeld steps lead. If it is not the best one, the certificate shows it: repeat with the nearest point as
    origin.
    """
    total = weights.sum()
    vertex = _best_vertex(X, weights) if len(X) <= MANY else _vertex_near_median(X, weights, tolerance)
    candidate = at_vertex(X, weights, vertex, tolerance)
    X = X - X[vertex]
    step, surplus = _way_out(X, weights, candidate)
    if surplus > 0.0:
        return _away_from_vertices(X, weights, _descend(X, weights, step)) or candidate
    if surplus < -TIE_TOLERANCE * total:  # f rises by more than in a tie, in every direction
        return candidate
    distances = _norms(X)
    ties = ~candidate.coincide & (_excess_over_origin(X, weights) <= TIE_TOLERANCE * total * distances)
    if not ties.any():
        return candidate
    end = int(np.argmax(np.where(ties, distances, -1.0)))
    return _away_from_vertices(X, weights, X[end] / 2.0) or candidate


def _best_vertex(X: Floats, weights: Floats) -> int:
    """Return the data point with the smallest f."""
    vertex = int(np.argmin(_norms(X)))
    for _ in range(2):  # again about the point just found, where differences are accurate
        excess = _excess_over_origin(X - X[vertex], weights)
        better = int(np.argmin(excess))
        not_by_rounding = TIE_TOLERANCE * weights.sum() * np.linalg.norm(X[better] - X[vertex])
        if excess[better] < -not_by_rounding:
            vertex = better
    return vertex


def _vertex_near_median(X: Floats, weights: Floats, tolerance: float) -> int:
    """Return the data point nearest to where Weiszfeld steps lead, or the one at the origin if f is least there."""
    origin = int(np.argmin(_norms(X)))
    z = X[origin] + _way_out(X - X[origin], weights, at_vertex(X, weights, origin, tolerance))[0]
    for _ in range(STEPS_TO_VERTEX):
        distances = _norms(X - z)
        if not distances.all():
            break
        pulls = weights / distances
        z = pulls @ X / pulls.sum()
    return int(np.argmin(_norms(X - z)))


def _way_out(X: Floats, weights: Floats, vertex: FermatPoint) -> tuple[Floats, float]:
    """Return a step (Vardi and Zhang) from the origin, a data point, and the others' pull minus its own weight.

    At the optimum the step is 0 and the number is not positive.
    """
    pull = vertex.pulls @ X
    strength = float(np.linalg.norm(pull))
    surplus = strength - float(weights[vertex.coincide].sum())
    if surplus <= VERTEX_TOLERANCE * weights.sum():
        return np.zeros_like(pull), min(surplus, 0.0)
    return pull * (surplus / strength / vertex.pulls.sum()), surplus


def _norms(rows: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _excess_over_origin(X: Floats, weights: Floats) -> Floats:
    """Return ``f(x_i) - f(0)`` for every i, without subtracting one large sum from another."""
    square = np.einsum("ij,ij->i", X, X)
    excess = np.empty(len(X))
    for start in range(0, len(X), MANY):  # in blocks, whose distances fit into memory
        rows = slice(start, start + MANY)
        gram = X[rows] @ X.T
        between = np.sqrt(np.maximum(square[rows, None] + square - 2.0 * gram, 0.0))
        total = between + np.sqrt(square)  # ||x_j - x_i|| + ||x_j||, and below the difference of their squares
        excess[rows] = ((square[rows, None] - 2.0 * gram) / np.where(total > 0.0, total, 1.0)) @ weights
    return excess


def _away_from_vertices(X: Floats, weights: Floats, z: Floats) -> FermatPoint | None:
    distances = _norms(X - z)
    if not distances.all():
        return None
    return FermatPoint(weights / distances, np.zeros(len(X), dtype=bool), int(np.argmin(distances)))


def _descend(X: Floats, weights: Floats, z: Floats) -> Floats:
    """Take Weiszfeld, then damped Newton steps, until the gradient is rounding error or no step makes f smaller."""
    for iteration in range(MAX_NEWTON):
        difference = X - z
        distances = _norms(difference)
        if not distances.all():
            break
        pulls = weights / distances
        gradient = pulls @ difference  # of -f
        if np.linalg.norm(gradient) <= 4.0 * UNIT_ROUNDOFF * weights.sum():
            break
        step = gradient / pulls.sum()
        if iteration >= WEISZFELD_STEPS:
            step = _newton_step(difference / distances[:, None], pulls, gradient, distances.max(), step)
        length = _step_length(difference, distances, weights, step, gradient)
        if length == 0.0:
            break
        z = z + length * step
    return z


def _newton_step(units: Floats, pulls: Floats, gradient: Floats, longest: float, otherwise: Floats) -> Floats:
    hessian = -(units.T * pulls) @ units
    hessian[np.diag_indices_from(hessian)] += pulls.sum() * (1.0 + 4.0 * UNIT_ROUNDOFF)
    try:
        step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(hessian), gradient)
    except scipy.linalg.LinAlgError:  # a line of points, to rounding
        return otherwise
    if not gradient @ step > 0.0:
        return otherwise
    return np.asarray(step * min(1.0, longest / np.linalg.norm(step)))  # z* is in the convex hull


def _step_length(difference: Floats, distances: Floats, weights: Floats, step: Floats, gradient: Floats) -> float:
    """Halve the step until f falls as it should; the change of f is a sum of small terms, not of distances."""
    along, square, slope = difference @ step, float(step @ step), float(gradient @ step)
    length = 1.0
    while length > 1e-12:
        moved = _norms(difference - length * step)
        change = weights @ (length * (length * square - 2.0 * along) / (moved + distances))
        if change <= -1e-4 * length * slope:
            return length
        length /= 2.0
    return 0.0
