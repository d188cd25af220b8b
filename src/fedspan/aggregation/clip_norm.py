"""Clip values, then aggregate them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedspan.aggregation.aggregator import Aggregate, Aggregator, Given
from fedspan.aggregation.safe_arithmetic import lower_median, norms, shrunk
from fedspan.checks import real_number
from fedspan.errors import InputError


@dataclass(frozen=True)
class ClipNorm:
    """Shorten the values whose Euclidean norm is above a bound, ``x -> x min(1, bound / ||x||)``, then aggregate.

    It limits the harm that a malicious site can do to any rule, also to `Mean`. But it also shortens honest values
    where the bound is too small, and unlike the other rules it depends on where zero is.

    While malicious sites have less than half of the weight, there are honest norms both below and above the (lower
    weighted) median norm. Values that are not finite are refused, and never clipped. Reported weights are not believed,
    not even with `Mean` inside: a clipped value with a huge weight would again count for all.

    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024, clip gradients
    before their geometric median.

    Parameters
    ----------
    aggregator : aggregator
        The rule that combines the clipped values; value, trust and certificate are its own.
    norm : float, optional
        The bound. Default: `factor` times the median norm.
    factor : float, default=10

    Examples
    --------
    >>> from fedspan.aggregation import Mean
    >>> ClipNorm(Mean(), factor=2)([[3.0, 4.0], [0.0, 5.0], [6e8, 8e8]]).value     # the last one becomes (6, 8)
    array([3.        , 5.66666667])
    """

    aggregator: Aggregator
    norm: float | None = None
    factor: float = 10.0

    def __post_init__(self) -> None:
        if not callable(self.aggregator) or isinstance(self.aggregator, type):
            raise InputError(f"aggregator={self.aggregator!r} must be an aggregator, such as Mean()")
        if self.norm is not None:
            object.__setattr__(self, "norm", real_number("norm", self.norm, above=0))
        object.__setattr__(self, "factor", real_number("factor", self.factor, above=0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        small, scale = shrunk(given.points)
        lengths = norms(small)
        bound = self.factor * lower_median(lengths, given.shares) if self.norm is None else self.norm * scale
        shorter = np.divide(bound, lengths, out=np.ones_like(lengths), where=lengths > bound)
        combined = self.aggregator(given.values(given.points * shorter[:, None]), given.weights)
        trust = np.zeros(len(given.present))
        trust[given.present] = combined.weights
        return Aggregate(combined.value, trust, combined.certificate)
