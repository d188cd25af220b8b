"""The mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Given


@dataclass(frozen=True)
class Mean:
    """The weighted mean: ``sum_l w_l x_l / sum_l w_l``.

    Not resilient: a single malicious site can move it anywhere. It is the only rule that takes the sample counts that
    sites report as weights.

    Trust is ``w_l / sum w``.

    Examples
    --------
    >>> Mean()([[0.0, 2.0], [4.0, 6.0]], weights=[3, 1])
    Aggregate(value=array([1., 3.]), weights=array([0.75, 0.25]), certificate=None)
    """

    believes_reported_weights: ClassVar[bool] = True

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        return given.mixed(given.shares[:, None])
