"""What all aggregators share: their interface, their result, and the checks of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedspan.aggregation.safe_arithmetic import mixture
from fedspan.arrays import Vector
from fedspan.errors import InputError

Points = NDArray[np.float64]  # (L, d)


@dataclass(frozen=True, eq=False)
class Aggregate:
    """What an aggregator returns.

    Attributes
    ----------
    value : array
        The combined value, of the shape that a single one has; float64, or complex128 for complex values.
    weights : array (L,)
        The trust in each site: non-negative, sums to 1. Where a rule treats every entry on its own, the mean over
        the entries of the share that each site had.
    certificate : float or None
        For rules that solve an optimisation problem (`GeometricMedian`, `MedianOfMeans`), a proven bound on how far
        the objective at `value` is above its minimum. ``None`` for rules with a closed form.
    """

    value: NDArray[Any]
    weights: Vector
    certificate: float | None = None


class Aggregator(Protocol):
    """A rule that makes one value out of the sites' values.

    All rules take weights that the coordinator sets. A rule with a true attribute ``believes_reported_weights`` also
    takes the sample counts that the sites report. Only `Mean` has it: no median survives a site that reports a huge
    count.
    """

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""


def believed(aggregator: Aggregator, counts: NDArray[Any]) -> NDArray[Any] | None:
    """Return the sites' reported `counts` as weights for `aggregator`, or ``None`` if it must not believe them."""
    return counts if getattr(aggregator, "believes_reported_weights", False) else None


@dataclass(frozen=True)
class Given:
    """Checked values as rows of real numbers, `points` (L, d), with positive `weights` (L,), and the way back.

    A complex number becomes a pair of real ones. Sites of weight zero are left out, as if they had not answered. The
    points may be a view of the caller's array.
    """

    points: Points
    weights: Vector
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, values: ArrayLike, weights: ArrayLike | None) -> Given:
        """Check the arguments of an aggregator."""
        array = _checked_values(values)
        shape = array.shape[1:]
        rows = array.reshape(len(array), int(np.prod(shape)))
        points = np.ascontiguousarray(rows).view(np.float64)
        if weights is None:
            return cls(points, np.ones(len(points)), shape, array.dtype, np.ones(len(points), dtype=bool))
        given = _checked_weights(weights, len(points))
        present = given > 0.0
        return cls(points if present.all() else points[present], given[present], shape, array.dtype, present)

    @property
    def shares(self) -> Vector:
        """The weights as parts of the largest one, so that their sum cannot overflow."""
        return np.asarray(self.weights / self.weights.max())

    def values(self, points: Points) -> NDArray[Any]:
        """Return rows like `points` as values of the original shape and type."""
        return np.ascontiguousarray(points).view(self.dtype).reshape(len(points), *self.shape)

    def aggregate(self, point: Vector, trust: Vector, certificate: float | None = None) -> Aggregate:
        """Return a rule's result: the row `point` (d,) and the trust (L,), which need not sum to 1."""
        weights = np.zeros(len(self.present))
        weights[self.present] = trust / trust.sum()
        return Aggregate(self.values(point[None])[0, ...], weights, certificate)

    def mixed(self, shares: Points) -> Aggregate:
        """Return the mean of the rows, weighted by `shares`: (L, d) for every entry, or (L, 1) for all entries alike.

        Shares are non-negative and need not sum to 1; every column has a positive one.
        """
        if shares.shape[1] == 0:  # values without entries
            return self.aggregate(np.zeros(0), self.shares)
        trust = (shares / shares.sum(axis=0)).mean(axis=1)
        return self.aggregate(mixture(self.points, shares), trust)


def _checked_values(values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        raise InputError("values must be one array (L, ...): all sites must have values of one shape") from None
    if array.dtype.kind not in "iufc":
        raise InputError(f"values must be numbers, not {array.dtype}")
    if array.ndim == 0 or len(array) == 0:
        raise InputError(f"values has the shape {array.shape}, and must have at least one value along its first axis")
    array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        index = int(np.argmin(finite.reshape(len(array), -1).all(axis=1)))
        raise InputError(f"values[{index}] holds NaN or infinity: drop what is not finite before aggregating")
    return array


def _checked_weights(weights: ArrayLike, count: int) -> Vector:
    array = np.asarray(weights)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        raise InputError(f"weights must be one number for each of the {count} values, not {array.dtype}{array.shape}")
    array = array.astype(np.float64)
    wrong = ~(np.isfinite(array) & (array >= 0.0))
    if wrong.any():
        index = int(np.argmax(wrong))
        raise InputError(f"weights[{index}]={array[index]} must be finite and at least 0")
    if not array.any():
        raise InputError("weights are all 0, and at least one must be above 0")
    return array
