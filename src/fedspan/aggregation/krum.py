"""Krum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given, Points
from fedspan.aggregation.safe_arithmetic import distances, norms
from fedspan.checks import whole_number
from fedspan.errors import InputError

_SAME = 1e-12  # relative: scores that are closer than this differ by rounding


@dataclass(frozen=True)
class Krum:
    """The value with the best score: the smallest sum of squared distances to its ``L - f - 2`` nearest others.

    With at most f bad sites among L, the best score is at most ``L - f - 2`` squared diameters of the honest values,
    and some honest ones are among the neighbours of any value: so the chosen one is within ``sqrt(L - f - 2)``
    diameters of an honest value.

    Values with the same score share the place (the paper takes the first of them, so that the result depends on the
    order): equal values do so without effect, otherwise their mean is returned.

    Weights do not enter the scores. A site of weight 0 does not count as one that came.

    Trust is all on the chosen value.

    Parameters
    ----------
    f : int
        How many sites may be bad. At least ``2 f + 3`` values must come.

    References
    ----------
    P. Blanchard, E. M. El Mhamdi, R. Guerraoui and J. Stainer, "Machine learning with adversaries: Byzantine tolerant
    gradient descent", NeurIPS 2017.

    Examples
    --------
    >>> Krum(f=1)([0.0, 1.0, 1.5, 3.0, 1e9])
    Aggregate(value=array(1.), weights=array([0., 1., 0., 0., 0.]), certificate=None)
    """

    f: int
    believes_reported_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        return given.mixed(chosen(given.points, self.f, 1) * given.shares[:, None])


def chosen(points: Points, f: int, m: int) -> Points:
    """Return which part (L, 1) of each row (L, d) is among the m with the best scores.

    Examples
    --------
    >>> chosen(np.array([[0.0], [2.0], [3.0], [4.0], [6.0]]), f=1, m=2).ravel()     # scores 13, 5, 2, 5, 13
    array([0. , 0.5, 1. , 0.5, 0. ])
    """
    count = len(points)
    if count < 2 * f + 3:
        raise InputError(f"f={f} is too many for the {count} values that came: Krum needs at least 2 f + 3 of them")
    nearest = np.sort(distances(points), axis=1)[:, 1 : count - f - 1]  # the first is the distance to itself
    scores = norms(nearest)  # the root of the paper's score: the same order, and it cannot overflow
    last = np.sort(scores)[m - 1]
    tied = np.abs(scores - last) <= _SAME * last
    better = (scores < last) & ~tied
    part: Points = np.where(tied, (m - better.sum()) / tied.sum(), better)
    return part[:, None]
