"""The geometric median of the values, and that of the means of groups of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Given, Points
from fedspan.aggregation.safe_arithmetic import mixture, shrunk
from fedspan.arrays import Vector
from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.linalg.medians.vector_median import geometric_median


@dataclass(frozen=True)
class GeometricMedian:
    """The point with the smallest weighted sum of distances: minimises ``f(z) = sum_l w_l ||x_l - z||``.

    Distances are Euclidean, of all entries of a value together (Frobenius for matrices). Let malicious sites have a
    part a < 1/2 of the weight, and a ball hold the honest values. Then the result is within ``2 (1 - a) / (1 - 2 a)``
    times its radius from its centre.

    Trust: the median is a weighted mean of the values. The weights are in proportion to ``w_l / ||x_l - z||``, or all
    on one value where that is the median. Certificate: a proven bound on ``f(value) - min f``, with the weights as
    given (1 each by default), that includes rounding. See S. Minsker, "Geometric median and robust estimation in Banach
    spaces", Bernoulli 21 (2015).

    Examples
    --------
    >>> result = GeometricMedian()([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [2.0 - 1e9, 1e9]])
    >>> result.value, bool(result.certificate < 1e-4)     # of an objective of 1.4e9
    (array([1., 1.]), True)
    """

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        return given.aggregate(*_solved(given.points, given.weights))


@dataclass(frozen=True)
class MedianOfMeans:
    """The geometric median of the means of `groups` groups of sites.

    Consecutive values form a group (a federation's replies come in name order). Sizes differ by at most one, and the
    first groups are larger: 8 values in 3 groups are 3 + 3 + 2. All groups count alike; weights count within a group.

    The means are more accurate than single values, and a malicious site spoils no more than its own group. So fewer
    than half of the groups may hold one. One group is the mean, as many groups as values the geometric median.

    Trust: the weight of a site's group in the geometric median, times the site's share in the mean of its group.
    Certificate: that of the geometric median of the group means, with weight 1 for each of them. See Y. Chen, L. Su
    and J. Xu, "Distributed statistical machine learning in adversarial settings", POMACS 1 (2017).

    Parameters
    ----------
    groups : int
        From 1 to the number of values.

    Examples
    --------
    >>> result = MedianOfMeans(groups=3)([0.0, 2.0, 3.0, 1.0, 1e9, -5.0])     # means 1, 2, 5e8
    >>> result.value, result.weights
    (array(2.), array([0. , 0. , 0.5, 0.5, 0. , 0. ]))
    """

    groups: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", whole_number("groups", self.groups, 1))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        count = len(given.points)
        if self.groups > count:
            raise InputError(f"groups={self.groups} is more than the {count} values that came: no group may be empty")
        shares = given.shares
        members = np.array_split(np.arange(count), self.groups)
        means = np.stack([mixture(given.points[group], shares[group, None]) for group in members])
        point, group_trust, certificate = _solved(means, np.ones(self.groups))
        trust = np.zeros(count)
        for group, trusted in zip(members, group_trust, strict=True):
            trust[group] = trusted * shares[group] / shares[group].sum()
        return given.aggregate(point, trust, certificate)


def _solved(points: Points, weights: Vector) -> tuple[Vector, Vector, float]:
    """Return the geometric median (d,) of rows (L, d), the trust (L,) and the certificate."""
    if points.shape[1] == 0:
        return np.zeros(0), weights / weights.max(), 0.0
    small, scale = shrunk(points)
    found = geometric_median(small, weights)
    return found.point / scale, found.weights, float(found.gap) / scale
