"""A proven bound on how far a point is from being the geometric median, rounding errors included.

The bounds need distances and the residual of a dual point, each with a bound of its error. How the point was found does
not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats

Bounds = tuple[Floats, Floats]  # (from below, from above), elementwise

UNIT_ROUNDOFF = 2.0**-53


def rounding(terms: int) -> float:
    """Bound the relative rounding error of a sum of `terms` products, in any order of summation."""
    return terms * UNIT_ROUNDOFF / (1.0 - terms * UNIT_ROUNDOFF)


def reach(distances: Floats, weights: Floats) -> float:
    """Return the radius of a ball round z that holds every minimiser, from the distances of the points to z.

    The smaller of two bounds. A minimiser z* lies in the convex hull: ``||z* - z|| <= max d``. For any set G with more
    than half of the weight, ``f(z*) <= f(z)`` and the triangle inequality give
    ``||z* - z|| (2 w(G) - W) <= 2 sum_G w_l d_l``. The other points can't draw it away, however far they are.
    """
    order = np.argsort(distances)
    d, w = distances[order], weights[order]
    held, moment = np.cumsum(w), np.cumsum(w * d)
    surplus = 2.0 * held - held[-1]
    majority = surplus > 1e-6 * held[-1]  # a narrower majority could be a rounding error
    return float(min(d[-1], np.min(2.0 * moment[majority] / surplus[majority])))


def gap_bound(
    weights: Floats, distance: Bounds, dual: Bounds, residual: float, coincide: NDArray[np.bool_], shift: float = 0.0
) -> float:
    """Bound ``f(z) - min f`` from a nearly feasible dual point.

    Let ``z'`` be the point where the distances d_l were measured and ``y_l = c_l (x_l - z')`` for any c_l >= 0. The
    unit vectors u_l = (x_l - z') / d_l make ``g = sum w_l u_l``, a subgradient of -f at z', and

        ||g|| <= ||sum y_l|| + sum |w_l - ||y_l|| |.

    A point that (nearly) coincides with z' may contribute any vector no longer than its weight. That shortens g by up
    to that weight and costs at most ``2 w_l d_l``. By convexity ``f(z') - min f <= ||g|| reach``; rounding z' to the
    returned z, a step of length `shift`, adds at most ``||g|| shift + sum w_l min(2 shift, shift^2 / (2 d_l))``.

    The weights are positive. `distance` and `dual` are lower and upper bounds of d_l and of ``||y_l||``, `residual` is
    an upper bound of ``||sum y_l||`` over the points that do not coincide with z', and `shift` is ``||z - z'||``.
    """
    low, high = distance
    away = ~coincide
    subgradient = max(0.0, residual + float(_misfit(weights, dual)[away].sum()) - float(weights[coincide].sum()))
    with np.errstate(divide="ignore", invalid="ignore"):
        bend = np.minimum(2.0 * shift, shift * (shift / (2.0 * low[away]))) if shift > 0.0 else 0.0
    gap = subgradient * (reach(high, weights) + shift) if subgradient > 0.0 else 0.0
    gap += float(np.sum(weights[away] * bend))
    gap += 2.0 * float(np.sum(weights[coincide] * (high[coincide] + shift)))
    return float(gap * (1.0 + 2.0**-20))  # covers the rounding of these few lines


def cluster_gap_bound(
    weights: Floats, high: Floats, dual: Bounds, residual: float, cluster: NDArray[np.bool_], pull: float
) -> float:
    """Bound the same gap at ``z = z'`` where the directions inside a tight cluster round z are badly known.

    If the others pull on the cluster F with less than its weight w(F), F can compensate a subgradient g other than 0.
    Replace its dual vectors y_l by ``(1 - t) y_l + t w_l v / w(F)`` with a common ``||v|| <= w(F)``. With
    ``t = ||g|| / (w(F) - ||sum_F y_l||)`` some v makes all sum to 0. The gap is at most the cost of that,
    ``2 t sum_F w_l d_l``; farther points count by their pull alone. Infinite where the cluster can't hold the pull.

    `high` are upper bounds of the distances, `pull` is one of ``||sum y_l||`` over the points outside of the cluster;
    no point coincides with z.
    """
    misfit = _misfit(weights, dual)
    subgradient = residual + float(misfit.sum())
    slack = float(weights[cluster].sum()) - pull - float(misfit[~cluster].sum()) - subgradient
    if slack <= 1e-9 * float(weights.sum()):  # less could be a rounding error
        return np.inf
    gap = 2.0 * min(1.0, subgradient / slack) * float(weights[cluster] @ high[cluster])
    return gap * (1.0 + 2.0**-20)


def _misfit(weights: Floats, dual: Bounds) -> Floats:
    return np.asarray(np.maximum(np.abs(weights - dual[0]), np.abs(weights - dual[1])))
