"""The mean of the values near a majority."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Given
from fedspan.aggregation.safe_arithmetic import distances
from fedspan.checks import real_number
from fedspan.linalg.medians.majority_ball import near_majority


@dataclass(frozen=True)
class MajorityMean:
    """The mean of the values within `factor` radii of the smallest ball round a value that holds a majority.

    Let malicious sites have less than half of the weight. If the honest values are within ``rho`` of one of them, the
    ball is no larger than ``rho`` and holds an honest value. So the result is within ``(factor + 2) rho`` of that one.
    Unlike that of the geometric median, the bound does not grow towards one half. And values that most sites share in
    part, such as copies of an honest one (`fedspan.attacks.Mimic`), count by their number. They do not take over,
    unless more than half of all are the same.

    Trust is in proportion to the weights of the values in the mean. A relative of the shortest half ("shorth"), and of
    the mean of the subset of smallest diameter: E. M. El Mhamdi, R. Guerraoui and S. Rouault, "The hidden vulnerability
    of distributed learning in Byzantium", ICML 2018.

    Parameters
    ----------
    factor : float, default=2
        At least 1.

    Examples
    --------
    >>> MajorityMean()([0.0, 1.0, 1.5, 3.0, 1e9])
    Aggregate(value=array(1.375), weights=array([0.25, 0.25, 0.25, 0.25, 0.  ]), certificate=None)
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", real_number("factor", self.factor, least=1))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        near = near_majority(distances(given.points), given.shares, self.factor)
        return given.mixed((given.shares * near)[:, None])
