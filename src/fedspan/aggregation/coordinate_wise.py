"""Rules that treat every entry on its own: the coordinate-wise median and the trimmed mean.

D. Yin, Y. Chen, K. Ramchandran and P. Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
rates", ICML 2018. Complex entries are combined by their real and imaginary parts. The trust in a site is its share in
each entry, averaged over the entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Given, Points
from fedspan.arrays import Vector
from fedspan.checks import whole_number
from fedspan.errors import InputError

_ROUNDING = 4.0 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class CoordinateMedian:
    """The weighted median of every entry on its own.

    The median of an entry is the smallest value such that the values up to it have half of the weight. Where they
    have exactly half, it is the middle between it and the next: for equal weights the usual median.

    While malicious sites have less than half of the weight, every entry stays between honest ones.

    Trust: in each entry the sites that have the median share 1 by their weights; of two middle values each has 1/2.
    By Yin et al., ICML 2018.

    Examples
    --------
    >>> CoordinateMedian()([[1.0, 5.0], [2.0, 4.0], [1e9, 4.5]])
    Aggregate(value=array([2. , 4.5]), weights=array([0. , 0.5, 0.5]), certificate=None)
    """

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        weight = given.shares
        shares = np.zeros(given.points.shape)
        for middle in middle_values(given.points, weight):
            tied = weight[:, None] * (given.points == middle)
            shares += tied / tied.sum(axis=0)
        return given.mixed(shares)


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of every entry without its `f` largest and `f` smallest values.

    The rule drops sites by their number, whatever their weights, and averages the others by their weights. Where
    several sites have the value on the edge and only some may stay, all of them stay with the same part.

    While at most f sites are malicious, every entry stays between honest ones. By Yin et al., ICML 2018.

    Parameters
    ----------
    f : int
        The number to drop on each side. ``2 f`` must be below the number of values.

    Examples
    --------
    >>> TrimmedMean(f=1)([1.0, 2.0, 4.0, 1e9])
    Aggregate(value=array(3.), weights=array([0. , 0.5, 0.5, 0. ]), certificate=None)
    """

    f: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        count = len(given.points)
        if 2 * self.f >= count:
            raise InputError(f"f={self.f} is too many for the {count} values that came: 2 f must be below their number")
        return given.mixed(_staying(given.points, self.f) * given.shares[:, None])


def middle_values(points: Points, weights: Vector) -> tuple[Vector, Vector]:
    """Return the lower and the upper median (d,) of every column."""
    count = len(points)
    if (weights == weights[0]).all():
        ranked = np.sort(points, axis=0)
        return ranked[(count - 1) // 2], ranked[count // 2]
    order = np.argsort(points, axis=0, kind="stable")
    held = np.cumsum(weights[order], axis=0) / weights.sum()
    unclear = _ROUNDING * count  # the largest rounding error of a sum of weights that should be a half
    lower = np.argmax(held >= 0.5 - unclear, axis=0)
    upper = np.argmax(held > 0.5 + unclear, axis=0)
    ranked = np.take_along_axis(points, order, axis=0)
    column = np.arange(points.shape[1])
    return ranked[lower, column], ranked[upper, column]


def _staying(points: Points, f: int) -> Points:
    """Return the share of each entry that is kept: 0 or 1, or between these where equal values lie at the cut."""
    ranked = np.sort(points, axis=0)
    low, high = ranked[f], ranked[len(points) - f - 1]
    at_low, at_high = points == low, points == high
    # From each edge as many leave as make f with those beyond it.
    stay_low = 1.0 - (f - (points < low).sum(axis=0)) / at_low.sum(axis=0)
    stay_high = 1.0 - (f - (points > high).sum(axis=0)) / at_high.sum(axis=0)
    inside = (points > low) & (points < high)
    stay: Points = inside + at_low * stay_low + at_high * stay_high  # where both edges are one value, all have the same
    return stay
