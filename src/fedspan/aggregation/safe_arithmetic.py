"""Means, norms and distances that stay right for any finite numbers, also for the huge ones of a malicious site."""

from __future__ import annotations

import numpy as np

from fedspan.arrays import Floats

_HUGE = 2.0**980
_SHRINK = 2.0**-40


def shrunk(points: Floats) -> tuple[Floats, float]:
    """Return `points` times a power of two, and that power: 1, unless sums or norms of such numbers may overflow."""
    if points.size == 0 or max(points.max(), -points.min()) < _HUGE:
        return points, 1.0
    return points * _SHRINK, _SHRINK


def mixture(points: Floats, shares: Floats) -> Floats:
    """Return ``sum_l shares_l points_l / sum_l shares_l`` (d,), clipped to the points (L, d) that have a share.

    Otherwise rounding could move the mean of equal points by a last digit. Shares (L, d) or (L, 1) are not negative and
    not huge; in every column at least one is above 0.
    """
    if shares.shape[1] == 1:
        has_share = shares[:, 0] > 0.0
        points, shares = points[has_share], shares[has_share]
        low, high = points.min(axis=0), points.max(axis=0)
    else:
        low = np.where(shares > 0.0, points, np.inf).min(axis=0)
        high = np.where(shares > 0.0, points, -np.inf).max(axis=0)
    small, scale = shrunk(points)
    with np.errstate(over="ignore"):  # a mean next to the largest number, which is clipped
        mean = np.einsum("ld,ld->d", np.broadcast_to(shares, small.shape), small) / shares.sum(axis=0) / scale
    return np.asarray(np.clip(mean, low, high))


def norms(rows: Floats) -> Floats:
    """Return the Euclidean norm of each row (L, d), also where squares overflow or vanish."""
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ld,ld->l", rows, rows)
    result: Floats = np.sqrt(squares)
    for i in np.flatnonzero(~((squares > 1e-280) & (squares < 1e300))):
        exponent = np.frexp(np.abs(rows[i]).max(initial=0.0))[1]
        unit = np.ldexp(rows[i], -exponent)  # entries of at most 1, one of them at least 1/2, or all 0
        with np.errstate(over="ignore"):  # beyond the largest number a norm is infinite
            result[i] = np.ldexp(np.sqrt(unit @ unit), exponent)
    return result


def distances(points: Floats) -> Floats:
    """Return all distances (L, L) between rows (L, d), up to a common power of two. Time O(L^2 d), memory O(L d).

    They are norms of differences: inner products are faster, and lose all digits where points share a large offset.
    """
    small, _ = shrunk(points)
    between = np.zeros((len(small), len(small)))
    for i in range(len(small) - 1):
        between[i, i + 1 :] = between[i + 1 :, i] = norms(small[i + 1 :] - small[i])
    return between


def lower_median(values: Floats, shares: Floats | None = None) -> float:
    """Return the median of `values` (L,), weighted by the optional `shares` (L,): of two in the middle the lower one.

    While fewer than half are malicious, it is at most the largest honest one and at least the smallest.
    """
    order = np.argsort(values, kind="stable")
    held = np.cumsum(np.ones(len(values)) if shares is None else shares[order])
    half = held[-1] * (0.5 - 4.0 * len(values) * np.finfo(np.float64).eps)  # rounding must not hide a half
    return float(values[order[np.argmax(held >= half)]])
