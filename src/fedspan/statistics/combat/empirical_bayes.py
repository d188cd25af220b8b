"""Empirical Bayes estimates of a site's location and scale, over its features.

W. E. Johnson, C. Li and A. Rabinovic, "Adjusting batch effects in microarray expression data using empirical Bayes
methods", Biostatistics 2007. The notation is theirs: gamma is the location of a site, delta its scale (a variance), in
units of standardised features. Hats are estimates of single features, stars those that borrow strength from the others.

Of a site's rows only their number, and of each feature the mean and the sum of squares about it, are needed:

    sum_j (z_j - g)^2 = squares + n (gamma_hat - g)^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.arrays import Vector

#: Most rounds of the parametric estimate, and the features whose prior is evaluated at the same time.
_MOST_ROUNDS, _BLOCK = 10_000, 256


@dataclass(frozen=True)
class SiteEffect:
    """Location and scale of a site's features (p,)."""

    gamma: Vector
    delta: Vector


def single_features(n: int, gamma_hat: Vector, squares: Vector, mean_only: bool) -> SiteEffect:
    """Return the estimates of each feature for itself; a scale that is unknown or zero counts as 1."""
    if mean_only or n < 2:
        return SiteEffect(gamma_hat, np.ones_like(gamma_hat))
    delta = squares / (n - 1)
    return SiteEffect(gamma_hat, np.where(delta > 0, delta, 1.0))


def parametric(n: int, hat: SiteEffect, squares: Vector, tol: float, mean_only: bool) -> SiteEffect:
    """Return the estimates with a normal prior of locations and an inverse gamma prior of scales.

    The iteration ends when no estimate above 0 changes by more than a share `tol` of itself (`_change`).
    """
    bar, t2 = float(hat.gamma.mean()), float(np.var(hat.gamma, ddof=1))
    if mean_only:
        return SiteEffect((t2 * hat.gamma + bar) / (t2 + 1.0), np.ones_like(hat.gamma))
    m, s2 = float(hat.delta.mean()), float(np.var(hat.delta, ddof=1))
    if not s2 > 0 or not t2 > 0:  # all features alike: there is no prior to estimate
        return hat
    a, b = (2 * s2 + m**2) / s2, (m * s2 + m**3) / s2
    gamma, delta = hat.gamma, hat.delta
    for _ in range(_MOST_ROUNDS):
        g = (t2 * n * hat.gamma + delta * bar) / (t2 * n + delta)
        d = (0.5 * (squares + n * (hat.gamma - g) ** 2) + b) / (n / 2.0 + a - 1.0)
        change = max(_change(g, gamma), _change(d, delta))
        gamma, delta = g, d
        if not change > tol:
            break
    return SiteEffect(gamma, delta)


def _change(new: Vector, old: Vector) -> float:
    """Return the largest change over the old value, with its sign: so neuroCombat and ComBat in R end their iteration.

    Changes of values below 0 do not count; with their size results differ from theirs by up to `tol`.
    """
    moved = np.abs(new - old)
    return float(np.divide(moved, old, out=np.where(moved > 0, np.inf, 0.0), where=old != 0).max())


def non_parametric(n: int, hat: SiteEffect, squares: Vector) -> SiteEffect:
    """Return the means of the other features' estimates, weighted by the likelihood that a feature has with them."""
    p = len(hat.gamma)
    gamma, delta = np.empty(p), np.empty(p)
    for at in range(0, p, _BLOCK):
        part = slice(at, at + _BLOCK)
        apart = squares[part, None] + n * (hat.gamma[part, None] - hat.gamma) ** 2
        logs = -n / 2 * np.log(2 * np.pi * hat.delta) - apart / (2 * hat.delta)
        logs[np.arange(len(logs)), np.arange(at, at + len(logs))] = -np.inf
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        gamma[part], delta[part] = weights @ hat.gamma, weights @ hat.delta
    return SiteEffect(gamma, delta)
