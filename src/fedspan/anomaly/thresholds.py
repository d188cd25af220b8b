"""Anomaly scores of training rows as if each had been left out of the training: thresholds are learned from these.

A model fits its own rows a little better than new ones, the more so the more columns there are for a row. So 7 % of new
rows pass the 0.95 quantile of the scores of 1,000 rows of 30 columns. Leaving a row out needs no second fit. Let v be a
row's distance from the mean of n rows, S their scatter and f its degrees of freedom. Without the row, v is c v with ``c
= n / (n - 1)``, and S is ``S - c v v'``. Where rows are not centred, c is 1. So by the formula of Sherman and Morrison

- a Mahalanobis distance ``m = v' (S / f)^-1 v`` becomes ``c^2 (f - 1) a / (1 - c a)`` with ``a = m / f``, exactly (but
  for the ridge, which counts where rows are fewer than about three times the columns: see `ridge_growth`);
- the one of the residual alone becomes this formula of the distance in all directions, less that of the distance within
  the subspace. This is exact if the subspace stayed. Its turn is the factor of the next line, over that of a subspace
  whose variances alone change;
- the squared length of the residual r becomes ``||r||^2 (c / (1 - c h))^2``, at most ``||c z||^2``, with
  ``h = sum_j (u_j'z)^2 / (f (l_j - l))``, where l_j are the variances within the subspace and l is their mean outside:
  by first derivatives of the subspace, if all variances outside are equal, in the form that is exact for least squares.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from fedspan.anomaly.scores import folded, in_blocks, residual_function
from fedspan.arrays import Array
from fedspan.federation import transform
from fedspan.federation.site.parameters import Count, Matrix, NotNegative, Positive, Vector

#: The least value of a difference that would be 0 but for rounding.
_LEAST = 1e-12


def few_rows(n: int, d: int, level: float, variances: Vector, noise: float) -> bool:
    """Return whether leaving rows out moves the false positive rate of the quantile `level` by about half a point.

    A squared distance in d directions has about the mean d and the deviation root of 2 d. For training rows it is too
    short by the part d / n, a residual by twice the mean h of a row. That is large where the `variances` within the
    subspace are close to those outside, `noise` in the mean. The rate is off by the density at the quantile times that,
    and by half as much again, as measured.

    Examples
    --------
    >>> few_rows(2000, 30, 0.95, np.array([9.0]), 0.1), few_rows(5000, 30, 0.95, np.array([9.0]), 0.1)
    (True, False)
    >>> few_rows(5000, 30, 0.8, np.array([9.0]), 0.1), few_rows(5000, 30, 0.95, np.array([1.01]), 1.0)
    (True, True)
    """
    turns = 2.0 * float(np.sum(variances * leverages(variances, noise, 1))) / n
    normal = NormalDist()
    density = normal.pdf(normal.inv_cdf(level)) if level < 1.0 else 0.0
    return bool(1.5 * density * max(d / n, turns) * np.sqrt(d / 2.0) > 0.005)


def leverages(variances: Vector, noise: float, free: int) -> Vector:
    """Return ``1 / (f (l_j - l))`` (k,): the weight of a squared coordinate within the subspace in h."""
    return np.asarray(1.0 / (free * np.maximum(variances - noise, np.finfo(np.float64).tiny)))


def left_out(distance: Vector, free: int, shift: float) -> Vector:
    """Return Mahalanobis distances as they were without the row: `free` is f, and `shift` is c.

    Examples
    --------
    >>> X = np.array([1.0, 2.0, 3.0, 10.0])
    >>> left_out((X[3:] - X.mean()) ** 2 / X.var(ddof=1), 3, 4 / 3), (X[3:] - X[:3].mean()) ** 2 / X[:3].var(ddof=1)
    (array([64.]), array([64.]))
    """
    a = distance / free
    return np.asarray(shift**2 * max(free - 1, 1) * a / np.maximum(1.0 - shift * a, _LEAST))


def ridge_growth(Z: Matrix, W: Matrix, root: Matrix, ridge: float, free: int, shift: float) -> Vector:
    """Return how much the distances of standardised rows Z (n, d) grow if they are left out of the ridge; W is Z root.

    The ridge is a part of each column's variance, and without the row that of column j is ``f - c z_j^2`` parts of f.
    The growth is ``r sum_j (M z)_j^2 c z_j^2 / (f - c z_j^2)``, over ``(1 - c a)^2``, with M the square of the root: by
    first derivatives, and exactly where the ridge is all there is.
    """
    part = shift * np.square(Z) / free
    return np.asarray(ridge * np.vecdot(np.square(W @ root), part / np.maximum(1.0 - part, _LEAST)))


@transform("anomaly.left_out_whitened")
def left_out_whitened(
    X: Array,
    mean: Vector,
    scale: Vector | None,
    root: Matrix,
    components: Matrix | None,
    inside: Vector | None,
    leverage: Vector | None,
    free: Count,
    shift: Positive,
    ridge: NotNegative = 0.0,
) -> Matrix:
    """Return `whitened_score` (n, 1) of rows left out; with `components` (k, d) it is that of the residual alone.

    Then `inside` (k,) has the inverse variances of the components, and `leverage` (k,) is theirs. A `ridge` above 0 is
    left out, too.
    """
    factor, U = folded(root, scale), None if components is None else folded(components, scale)

    def score(x: Array, D: Matrix) -> Vector:
        W = D @ factor
        whole = np.asarray(np.vecdot(W, W))
        if U is None and not ridge:
            return left_out(whole, free, shift)
        if U is None:
            Z = D if scale is None else D / scale
            grown = ridge_growth(Z, W, root, ridge, free, shift)
            again = max(free - 1, 1) / free * (shift / np.maximum(1.0 - shift * whole / free, _LEAST)) ** 2
            return left_out(whole, free, shift) + again * grown
        squares = np.square(D @ U)
        within = squares @ inside
        everywhere = left_out(whole + within, free, shift)
        turned = (1.0 - shift * within / free) / np.maximum(1.0 - shift * (squares @ leverage), _LEAST)
        return np.asarray(np.fmin((everywhere - left_out(within, free, shift)) * turned**2, everywhere))

    return in_blocks(X, mean, score)


@transform("anomaly.left_out_subspace")
def left_out_subspace(
    X: Array,
    mean: Vector,
    scale: Vector | None,
    components: Matrix,
    inside: Vector | None,
    outside: NotNegative,
    leverage: Vector,
    free: Count,
    shift: Positive,
) -> Matrix:
    """Return `subspace_score` (n, 1) of rows left out; `leverage` (k,) is ``1 / (f (l_j - l))``."""
    residuals = residual_function(mean, scale, components)

    def score(x: Array, D: Matrix) -> Vector:
        largest = np.square(shift * D if scale is None else shift * D / scale).sum(axis=1)
        T, residual = residuals(x, D)
        squares = np.square(T)
        grown = shift / np.maximum(1.0 - shift * (squares @ leverage), _LEAST)  # huge where the row alone makes an axis
        alone = outside * np.fmin(residual * grown**2, largest)
        return np.asarray(alone if inside is None else alone + left_out(squares @ inside, free, shift))

    return in_blocks(X, mean, score)
