"""Krum and Multi-Krum: values whose neighbours are near.

P. Blanchard, E. M. El Mhamdi, R. Guerraoui and J. Stainer, "Machine learning with adversaries: Byzantine tolerant
gradient descent", NeurIPS 2017. Weights do not enter the scores. A site of weight 0 does not count as one that came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Given, Points
from fedspan.aggregation.safe_arithmetic import distances, norms
from fedspan.checks import whole_number
from fedspan.errors import InputError

_SAME = 1e-12  # relative: scores that are closer than this differ by rounding


@dataclass(frozen=True)
class Krum:
    """The value with the best score: the smallest sum of squared distances to its ``L - f - 2`` nearest others.

    With at most f malicious sites among L, the best score is at most ``L - f - 2`` squared diameters of the honest
    values. Some honest ones are among the neighbours of any value. So the chosen one is within ``sqrt(L - f - 2)``
    diameters of an honest value.

    Values with the same score are averaged. (The paper takes the first of them, so that the result depends on the
    order.) Trust is all on the chosen value. By Blanchard et al., NeurIPS 2017.

    Parameters
    ----------
    f : int
        The number of sites that may be malicious. At least ``2 f + 3`` values must come.

    Examples
    --------
    >>> Krum(f=1)([0.0, 1.0, 1.5, 3.0, 1e9])
    Aggregate(value=array(1.), weights=array([0., 1., 0., 0., 0.]), certificate=None)
    """

    f: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        return given.mixed(_chosen(given.points, self.f, 1) * given.shares[:, None])


@dataclass(frozen=True)
class MultiKrum:
    """The mean, by their weights, of the `m` values with the best Krum scores.

    At most ``L - f`` may be chosen. Then no chosen value scores worse than the worst honest one, and a malicious one
    among them is near to honest ones. (The paper lets m be anything up to L, where it is the mean of all.)

    Values with the same score that compete for fewer places are all taken with the same part. The chosen values share
    the trust. By Blanchard et al., NeurIPS 2017.

    Parameters
    ----------
    f : int
        The number of sites that may be malicious. At least ``2 f + 3`` values must come.
    m : int
        The number of values to choose; at least ``m + f`` values must come. 1 is `Krum`.

    Examples
    --------
    >>> MultiKrum(f=1, m=2)([0.0, 1.0, 1.5, 3.0, 1e9])
    Aggregate(value=array(1.25), weights=array([0. , 0.5, 0.5, 0. , 0. ]), certificate=None)
    """

    f: int
    m: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "f", whole_number("f", self.f, 0))
        object.__setattr__(self, "m", whole_number("m", self.m, 1))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        count = len(given.points)
        if self.m > count - self.f:
            raise InputError(f"m={self.m} is too many for the {count} values that came: at most L - f may be chosen")
        return given.mixed(_chosen(given.points, self.f, self.m) * given.shares[:, None])


def _chosen(points: Points, f: int, m: int) -> Points:
    """Return the part (L, 1) of each row (L, d) among the m with the best scores; ties share the last places."""
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
