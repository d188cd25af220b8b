"""The geometric median of group means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.base import Aggregate, Given
from fedspan.aggregation.geometric_median import solved
from fedspan.aggregation.safe_arithmetic import mixture
from fedspan.checks import whole_number
from fedspan.errors import InputError


@dataclass(frozen=True)
class MedianOfMeans:
    """The geometric median of the means of `groups` groups of sites.

    Consecutive values form a group, in the order in which they come (a federation's replies come in name order).
    Sizes differ by at most one, and the first groups have the additional values: 8 values in 3 groups are 3 + 3 + 2.
    All groups count alike; weights count within a group.

    The means are more accurate than single values, and a bad site spoils no more than its own group: so fewer than half
    of the groups may hold a bad site. One group is the mean, as many groups as values the geometric median.

    Trust: the weight of a site's group in the geometric median, times the site's share in the mean of its group.
    A bad site that sits in a group with honest ones takes their trust with it.

    Certificate: that of the geometric median of the group means, with weight 1 for each of them.

    Parameters
    ----------
    groups : int
        From 1 to the number of values.

    References
    ----------
    Y. Chen, L. Su and J. Xu, "Distributed statistical machine learning in adversarial settings: Byzantine gradient
    descent", POMACS 1 (2017).

    Examples
    --------
    >>> result = MedianOfMeans(groups=3)([0.0, 2.0, 3.0, 1.0, 1e9, -5.0])     # means 1, 2, 5e8
    >>> result.value, result.weights
    (array(2.), array([0. , 0. , 0.5, 0.5, 0. , 0. ]))
    """

    groups: int
    believes_reported_weights: ClassVar[bool] = False

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
        point, group_trust, certificate = solved(means, np.ones(self.groups))
        trust = np.zeros(count)
        for group, trusted in zip(members, group_trust, strict=True):
            trust[group] = trusted * shares[group] / shares[group].sum()
        return given.aggregate(point, trust, certificate)
