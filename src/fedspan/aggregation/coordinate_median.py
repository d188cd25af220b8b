"""The coordinate-wise median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given, Points, Vector

_ROUNDING = 4.0 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class CoordinateMedian:
    """The weighted median of every entry on its own.

    The median of an entry is the smallest value such that the values up to it have half of the weight. Where they
    have exactly half, it is the middle between it and the next: for equal weights the usual median. Complex entries
    have medians of their real and imaginary parts.

    While bad sites have less than half of the weight, every entry stays between honest ones.

    Trust: in each entry the sites that have the median share 1 by their weights; of two middle values each has 1/2.
    The mean over the entries is returned.

    References
    ----------
    D. Yin, Y. Chen, K. Ramchandran and P. Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
    rates", ICML 2018.

    Examples
    --------
    >>> CoordinateMedian()([[1.0, 5.0], [2.0, 4.0], [1e9, 4.5]])
    Aggregate(value=array([2. , 4.5]), weights=array([0. , 0.5, 0.5]), certificate=None)
    """

    believes_reported_weights: ClassVar[bool] = False

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        weight = given.shares
        shares = np.zeros(given.points.shape)
        for middle in middle_values(given.points, weight):
            tied = weight[:, None] * (given.points == middle)
            shares += tied / tied.sum(axis=0)
        return given.mixed(shares)


def middle_values(points: Points, weights: Vector) -> tuple[Vector, Vector]:
    """Return the lower and the upper median (d,) of every column."""
    count = len(points)
    if (weights == weights[0]).all():
        ranked = np.sort(points, axis=0)
        return ranked[(count - 1) // 2], ranked[count // 2]
    order = np.argsort(points, axis=0, kind="stable")
    held = np.cumsum(weights[order], axis=0) / weights.sum()
    unclear = _ROUNDING * count  # how far a sum of weights may be from the half that it should be
    lower = np.argmax(held >= 0.5 - unclear, axis=0)
    upper = np.argmax(held > 0.5 + unclear, axis=0)
    ranked = np.take_along_axis(points, order, axis=0)
    column = np.arange(points.shape[1])
    return ranked[lower, column], ranked[upper, column]
