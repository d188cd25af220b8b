"""The geometric median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given, Points, Vector
from fedspan.aggregation.safe_arithmetic import shrunk
from fedspan.linalg.medians.vector_median import geometric_median


@dataclass(frozen=True)
class GeometricMedian:
    """The point with the smallest weighted sum of distances: minimises ``f(z) = sum_l w_l ||x_l - z||``.

    Distances are Euclidean, of all entries of a value together (Frobenius for matrices). While bad sites have a part
    a < 1/2 of the weight, the result is within ``2 (1 - a) / (1 - 2 a)`` times the radius of any ball that holds
    the honest values from that ball's centre.

    Trust: the median is a weighted mean of the values, and these are the weights: in proportion to
    ``w_l / ||x_l - z||``, or all on one value where that is the median.

    Certificate: a proven bound on ``f(value) - min f``, with the weights as given (1 each where none were), that
    includes rounding.

    References
    ----------
    S. Minsker, "Geometric median and robust estimation in Banach spaces", Bernoulli 21 (2015).

    Examples
    --------
    >>> result = GeometricMedian()([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [2.0 - 1e9, 1e9]])
    >>> result.value, bool(result.certificate < 1e-4)     # of an objective of 1.4e9
    (array([1., 1.]), True)
    """

    believes_reported_weights: ClassVar[bool] = False

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        return given.aggregate(*solved(given.points, given.weights))


def solved(points: Points, weights: Vector) -> tuple[Vector, Vector, float]:
    """Return the geometric median (d,) of rows (L, d), the trust (L,) and the certificate.

    Examples
    --------
    >>> solved(np.array([[1.0], [2.0], [9.0]]), np.ones(3))[:2]
    (array([2.]), array([0., 1., 0.]))
    """
    if points.shape[1] == 0:
        return np.zeros(0), weights / weights.max(), 0.0
    small, scale = shrunk(points)
    found = geometric_median(small, weights)
    return found.point / scale, found.weights, float(found.gap) / scale
