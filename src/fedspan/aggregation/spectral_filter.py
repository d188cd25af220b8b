"""The spectral filter: drop values that stand out along a direction of large spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fedspan.aggregation.aggregator import Aggregate, Given, Points
from fedspan.aggregation.coordinate_wise import middle_values
from fedspan.aggregation.safe_arithmetic import norms, shrunk
from fedspan.arrays import Vector
from fedspan.checks import real_number

_SAME = 1e-9  # relative: widths that are closer than this differ by rounding
_MOST_DIRECTIONS = 50


@dataclass(frozen=True)
class SpectralFilter:
    """The mean of the values that do not stand out along the directions of largest spread.

    Honest values of many entries differ in all directions, so that along a single one they are close together.
    Malicious values that push the mean together must stand out along their common direction, which then has the
    largest spread. A median of distances does not see this: in d dimensions malicious sites can move it by about
    ``sqrt(d)`` times as much.

    First every value is shortened to the median distance from the coordinate-wise median, by its weight. Then the rule
    repeats. It takes the shortened values' direction of largest spread. There the shortest interval that holds a part
    ``1 - fraction`` of the weight gives a centre and, for a normal distribution, a deviation. Values more than
    `threshold` deviations from the centre are dropped, the farthest first. It ends when no value is as far, or when a
    part `fraction` of the weight is dropped.

    Trust is in proportion to the weight of the values that are kept, times how much they were shortened. Time
    O(L d min(L, d)) for each direction, memory O(L d).

    I. Diakonikolas, G. Kamath, D. Kane, J. Li, A. Moitra and A. Stewart, "Being robust (in high dimensions) can be
    practical", ICML 2017. V. Shejwalkar and A. Houmansadr, "Manipulating the Byzantine", NDSS 2021.

    Parameters
    ----------
    fraction : float, default=0.45
        The part of the weight that may be malicious, below 1/2.
    threshold : float, default=5
        Deviations from the centre at which a value stands out.

    Examples
    --------
    >>> values = np.vstack([np.eye(64), -np.eye(64), np.full((30, 64), 0.125)])     # thirty push together
    >>> float(values.mean(axis=0).max()), abs(float(SpectralFilter()(values).value.max()))
    (0.0237..., 0.0)
    """

    fraction: float = 0.45
    threshold: float = 5.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", real_number("fraction", self.fraction, above=0, below=0.5))
        object.__setattr__(self, "threshold", real_number("threshold", self.threshold, above=0))

    def __call__(self, values: ArrayLike, weights: ArrayLike | None = None) -> Aggregate:
        """Combine `values` (L, ...) with the optional `weights` (L,)."""
        given = Given.of(values, weights)
        if given.points.shape[1] == 0:
            return given.mixed(given.shares[:, None])
        directions, shorter = _shortened(given.points, given.shares)
        kept = self._kept(directions, given.shares)
        return given.mixed((given.shares * shorter * kept)[:, None])

    def _kept(self, points: Points, shares: Vector) -> Vector:
        """Return 1 for the rows (L, d) that stay and 0 for the others."""
        kept = np.ones(len(points))
        left = self.fraction * shares.sum() * (1.0 + _SAME)
        for _ in range(_MOST_DIRECTIONS):
            along = points @ _widest(points, shares * kept)
            centre, deviation = _shortest(along[kept > 0.0], shares[kept > 0.0], 1.0 - self.fraction)
            far = np.abs(along - centre)
            out = (kept > 0.0) & (far > self.threshold * deviation + _SAME)
            if not out.any():
                break
            # Values that are equally far are dropped together or not at all.
            for distance in np.unique(far[out])[::-1]:
                tied = out & (far == distance)
                left -= shares[tied].sum()
                if left < 0.0:
                    return kept
                kept[tied] = 0.0
        return kept


def _shortened(points: Points, shares: Vector) -> tuple[Points, Vector]:
    """Return the rows about their median, in units of the median distance, at most 1 long; and how much they shrank."""
    small, _ = shrunk(points)
    centred = small - _median(small, shares)
    lengths = norms(centred)
    unit = float(_median(lengths[:, None], shares)[0])
    if unit == 0.0:  # most values are the same
        return np.zeros(points.shape), np.where(lengths > 0.0, 0.0, 1.0)
    shorter = np.divide(unit, lengths, out=np.ones_like(lengths), where=lengths > unit)
    exponent = int(np.frexp(unit)[1])
    return np.ldexp(centred * shorter[:, None], -exponent) / np.ldexp(unit, -exponent), shorter


def _median(points: Points, shares: Vector) -> Vector:
    low, high = middle_values(points, shares)
    return np.asarray(low + (high - low) / 2.0)


def _widest(points: Points, shares: Vector) -> Vector:
    """Return the direction (d,) in which the rows (L, d) differ most."""
    root = np.sqrt(shares / shares.sum())[:, None]
    spread = root * (points - (root**2).T @ points)
    L, d = spread.shape
    if d <= L:
        vector: Vector = scipy.linalg.eigh(spread.T @ spread, subset_by_index=(d - 1, d - 1))[1][:, 0]
        return vector
    vector = spread.T @ scipy.linalg.eigh(spread @ spread.T, subset_by_index=(L - 1, L - 1))[1][:, 0]
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0.0 else vector


def _shortest(along: Vector, shares: Vector, part: float) -> tuple[float, float]:
    """Return centre and deviation by the shortest interval that holds a part of the weight; the mean centre of several.

    The deviation is that of a normal distribution of which such an interval about the mean holds as much.
    """
    order = np.argsort(along, kind="stable")
    ranked = along[order]
    held = np.concatenate([[0.0], np.cumsum(shares[order])])
    need = part * held[-1] * (1.0 - _SAME)
    last = np.searchsorted(held, held[:-1] + need) - 1  # the interval from each value to the first that makes it enough
    first = np.flatnonzero(last < len(ranked))
    widths = ranked[last[first]] - ranked[first]
    short = widths <= widths.min() + _SAME * (ranked[-1] - ranked[0])
    middles = (ranked[last[first]] + ranked[first])[short] / 2.0
    return float(middles.mean()), float(widths.min() / (2.0 * ndtri(0.5 + part / 2.0)))
