"""A linear model with a random intercept of each site, from sums over its rows (restricted maximum likelihood).

``y = Z b + u_s + e`` with ``var(u) = theta var(e)``. Of site s only its weight n_s and the sums s_s of Z and t_s of y
matter beside the products of all rows:

    Z'V^-1 Z = Z'Z - sum_s c_s s_s s_s',    c_s = theta / (1 + theta n_s)

Laird and Ware, "Random-effects models for longitudinal data" (1982). The variance ratio is the root of the derivative,
so that it has all digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from fedspan.arrays import Matrix, Vector
from fedspan.statistics.regression.parts.newton import inverse


@dataclass(frozen=True)
class SiteSums:
    """Products of all rows and their number; by site the weight (s,), and sums of Z (s, k) and of residuals (s,)."""

    gram: Matrix
    moment: Vector
    squares: float
    n: int
    weights: Vector
    columns: Matrix
    residuals: Vector


@dataclass(frozen=True)
class RandomIntercept:
    """Coefficients (k,), their covariance, effects of the sites (s,), and the variances within and between sites."""

    coef: Vector
    covariance: Matrix
    effects: Vector
    within: float
    between: float
    squares: float
    loglik: float
    rounds: int


@dataclass(frozen=True)
class _Profile:
    """The restricted likelihood at one variance ratio."""

    coef: Vector
    inner: Matrix
    squares: float
    objective: float  # minus twice the log-likelihood, up to a constant
    slope: float


def random_intercept(sums: SiteSums) -> RandomIntercept:
    """Return the model with the variance ratio of the largest restricted likelihood."""
    grid = np.concatenate([[0.0], np.logspace(-8, 8, 129)])
    profiles = [_profile(sums, theta) for theta in grid]
    best = int(np.argmin([one.objective for one in profiles]))
    theta = float(grid[best])
    low, high = (int(np.clip(best + k, 0, len(grid) - 1)) for k in (-1, 1))
    for a, b in ((low, best), (best, high)):
        if profiles[a].slope < 0 < profiles[b].slope:
            theta = brentq(lambda ratio: _profile(sums, ratio).slope, grid[a], grid[b], xtol=1e-300, rtol=1e-15)
    found = _profile(sums, theta)
    df = sums.n - len(sums.moment)
    within = found.squares / df
    n, s, t = sums.weights, sums.columns, sums.residuals
    effects = theta / (1 + theta * n) * (t - s @ found.coef)
    loglik = -(found.objective + df * (1 + math.log(2 * math.pi / df))) / 2
    return RandomIntercept(
        found.coef, within * found.inner, effects, within, theta * within, found.squares, loglik, len(grid)
    )


def _profile(sums: SiteSums, theta: float) -> _Profile:
    n, s, t = sums.weights, sums.columns, sums.residuals
    c, slope = theta / (1 + theta * n), (1 + theta * n) ** -2.0
    M = sums.gram - s.T @ (c[:, None] * s)
    m = sums.moment - s.T @ (c * t)
    inner = inverse(M)
    b = inner @ m
    squares = sums.squares - float(c @ t**2) - float(m @ b)
    df = sums.n - len(b)
    objective = float(np.log1p(theta * n).sum()) + float(np.linalg.slogdet(M)[1]) + df * math.log(max(squares, 1e-300))
    left = (t - s @ b) ** 2
    change = float((n / (1 + theta * n)).sum()) - float(slope @ np.einsum("sj,jk,sk->s", s, inner, s))
    return _Profile(b, inner, squares, objective, change - df * float(slope @ left) / squares)
