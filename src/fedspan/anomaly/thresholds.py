"""Anomaly scores of training rows as if each had been left out of the training: what thresholds are learned from.

A model fits its own rows a little better than new ones, the more columns there are for a row the more so: the 0.95
quantile of the scores of 1,000 rows of 30 columns is passed by 7 % of new rows. Leaving each row out needs no second
fit. Let v be a row's distance from the mean of n rows, S their scatter and f its degrees of freedom. Without the row, v
is c v with ``c = n / (n - 1)``, and S is ``S - c v v'`` (where rows are not centred, c is 1). So by the formula of
Sherman and Morrison

- a Mahalanobis distance ``m = v' (S / f)^-1 v`` becomes ``c^2 (f - 1) a / (1 - c a)`` with ``a = m / f``, exactly (but
  for the ridge);
- the one of the residual alone becomes what this formula makes of the distance in all directions, less what it makes of
  the distance within the subspace: exactly, were the subspace the same without the row. That it turns is told by the
  factor of the next line, over that of a subspace whose variances alone change;
- the squared length of the residual r becomes ``||r||^2 (c / (1 - c h))^2``, at most ``||c z||^2``, with
  ``h = sum_j (u_j'z)^2 / (f (l_j - l))``, where l_j are the variances within the subspace and l is their mean outside:
  as far as first derivatives tell how the subspace turns, were all variances outside the same, in the form that is
  exact for least squares.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.scores import in_blocks, subspace_score
from fedspan.federation import transform

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: What no difference is below that would be 0 but for rounding.
_LEAST = 1e-12


def few_rows(n: int, d: int, level: float, variances: Matrix, noise: float) -> bool:
    """Return whether leaving rows out moves the false positive rate of the quantile `level` by over half a point or so.

    A squared distance in d directions has about the mean d and the deviation root of 2 d. Of rows that were trained on
    it is too short by the part d / n, a residual by twice the mean h of a row. The latter is much where the `variances`
    within the subspace are close to those outside, `noise` in the mean: nearly any other subspace were as good. What
    is missed is the density at the quantile times that, and half as much again, as was measured.

    Examples
    --------
    >>> few_rows(2000, 30, 0.95, np.array([9.0]), 0.1), few_rows(5000, 30, 0.95, np.array([9.0]), 0.1)
    (True, False)
    >>> few_rows(5000, 30, 0.8, np.array([9.0]), 0.1), few_rows(5000, 30, 0.95, np.array([1.01]), 1.0)
    (True, True)
    """
    turns = 2.0 * float(np.sum(variances / _apart(variances, noise))) / n
    normal = NormalDist()
    density = normal.pdf(normal.inv_cdf(level)) if level < 1.0 else 0.0
    return bool(1.5 * density * max(d / n, turns) * np.sqrt(d / 2.0) > 0.005)


def leverages(variances: Matrix, noise: float, free: int) -> Matrix:
    """Return ``1 / (f (l_j - l))`` (k,): what a squared coordinate within the subspace weighs in h."""
    return np.asarray(1.0 / (free * _apart(variances, noise)))


def _apart(variances: Matrix, noise: float) -> Matrix:
    return np.maximum(variances - noise, np.finfo(np.float64).tiny)


def left_out(distance: Matrix, free: int, shift: float) -> Matrix:
    """Return Mahalanobis distances as they were without the row: `free` is f, and `shift` is c.

    Examples
    --------
    >>> X = np.array([1.0, 2.0, 3.0, 10.0])
    >>> left_out((X[3:] - X.mean()) ** 2 / X.var(ddof=1), 3, 4 / 3), (X[3:] - X[:3].mean()) ** 2 / X[:3].var(ddof=1)
    (array([64.]), array([64.]))
    """
    a = distance / free
    return np.asarray(shift**2 * max(free - 1, 1) * a / np.maximum(1.0 - shift * a, _LEAST))


@transform("anomaly.left_out_whitened")
def left_out_whitened(
    X: Array,
    mean: Matrix,
    scale: Matrix | None,
    root: Matrix,
    components: Matrix | None,
    inside: Matrix | None,
    leverage: Matrix | None,
    free: int,
    shift: float,
) -> Matrix:
    """Return `whitened_score` (n, 1) of rows left out; with `components` (k, d) it is that of the residual alone.

    `inside` (k,) has the inverse variances of the components then, and `leverage` (k,) is theirs.
    """
    width = np.ones(len(mean)) if scale is None else scale
    factor = np.ascontiguousarray((root / width).T)
    U = None if components is None else np.ascontiguousarray((components / width).T)

    def score(x: Array, D: Matrix) -> Matrix:
        W = D @ factor
        whole = np.asarray(np.vecdot(W, W))
        if U is None:
            return left_out(whole, free, shift)
        squares = np.square(D @ U)
        within = squares @ inside
        everywhere = left_out(whole + within, free, shift)
        turned = (1.0 - shift * within / free) / np.maximum(1.0 - shift * (squares @ leverage), _LEAST)
        return np.asarray(np.fmin((everywhere - left_out(within, free, shift)) * turned**2, everywhere))

    return in_blocks(X, mean, score)


@transform("anomaly.left_out_subspace")
def left_out_subspace(
    X: Array,
    mean: Matrix,
    scale: Matrix | None,
    components: Matrix,
    inside: Matrix | None,
    outside: float,
    leverage: Matrix,
    free: int,
    shift: float,
) -> Matrix:
    """Return `subspace_score` (n, 1) of rows left out; `leverage` (k,) is ``1 / (f (l_j - l))``."""
    residual = subspace_score(X, mean, scale, components, None, 1.0)
    width = np.ones(len(mean)) if scale is None else scale
    U = np.ascontiguousarray((components / width).T)

    def grown(x: Array, D: Matrix) -> Matrix:
        """Return c / (1 - c h), huge where the row alone makes an axis."""
        return np.asarray(shift / np.maximum(1.0 - shift * (np.square(D @ U) @ leverage), _LEAST))

    def largest(x: Array, D: Matrix) -> Matrix:
        return np.asarray(np.square(shift * D / width).sum(axis=1))

    def within(x: Array, D: Matrix) -> Matrix:
        return left_out(np.square(D @ U) @ inside, free, shift)

    with np.errstate(over="ignore", invalid="ignore"):
        alone = outside * np.fmin(residual * in_blocks(X, mean, grown) ** 2, in_blocks(X, mean, largest))
    return alone if inside is None else alone + in_blocks(X, mean, within)
