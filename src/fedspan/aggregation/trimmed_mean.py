"""The coordinate-wise trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given, Points
from fedspan.checks import whole_number
from fedspan.errors import InputError


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of every entry without its `f` largest and `f` smallest values.

    Sites are dropped by their number, whatever their weights; those that stay are averaged with them. Where a value
    stands on the edge several times and only some of it may stay, all who have it stay with the same part.
    Complex entries are trimmed in their real and imaginary parts.

    While at most f sites are bad, every entry stays between honest ones.

    Trust: the share that a site has in each entry, averaged over the entries.

    Parameters
    ----------
    f : int
        How many to drop on each side. ``2 f`` must be below the number of values.

    References
    ----------
    D. Yin, Y. Chen, K. Ramchandran and P. Bartlett, "Byzantine-robust distributed learning: towards optimal statistical
    rates", ICML 2018.

    Examples
    --------
    >>> TrimmedMean(f=1)([1.0, 2.0, 4.0, 1e9])
    Aggregate(value=array(3.), weights=array([0. , 0.5, 0.5, 0. ]), certificate=None)
    """

    f: int
    believes_reported_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        count = len(given.points)
        if 2 * self.f >= count:
            raise InputError(
                f"f={self.f} is too many for the {count} values that came: 2 f must be below their number, "
                "or nothing is left to average"
            )
        return given.mixed(_staying(given.points, self.f) * given.shares[:, None])


def _staying(points: Points, f: int) -> Points:
    """Return which part of each entry stays: 0 or 1, and something between where equal ones stand on the edge."""
    ranked = np.sort(points, axis=0)
    low, high = ranked[f], ranked[len(points) - f - 1]
    at_low, at_high = points == low, points == high
    # Of those on an edge, as many leave as are needed to make f with those beyond it.
    leaving_low = f - (points < low).sum(axis=0)
    leaving_high = f - (points > high).sum(axis=0)
    stay_low = 1.0 - leaving_low / at_low.sum(axis=0)
    stay_high = 1.0 - leaving_high / at_high.sum(axis=0)
    inside = (points > low) & (points < high)
    stay: Points = inside + at_low * stay_low + at_high * stay_high  # where both edges are one value, all have the same
    return stay
