"""What local steps do to a linear model, in closed form: the cost of a round does not depend on their number.

Gradient descent on ``||y - X theta||^2 / (2 n)`` with step `rate` is affine in theta, and so is the proximal step. Both
are ``theta + Z' (y - X theta)`` with an (n, d) matrix Z that depends on X alone: Lemma 1 of L. Su, J. Xu and P. Yang,
"Global convergence of federated learning for mixed regression", NeurIPS 2022, with ``Z = (rate / n) P X``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedspan.errors import InputError

Array = NDArray[np.float64]


def descent_operator(X: Array, rate: float, steps: int, rows: int | None = None) -> Array:
    """Return Z (n, d): `steps` gradient steps of size `rate` lead from theta to ``theta + Z' (y - X theta)``.

    Parameters
    ----------
    X : (n, d) array
    rate : float
        Step size; the steps shrink the residual where ``rate`` is below two over the largest eigenvalue of ``X'X / n``.
    steps : int
    rows : int, optional
        How many rows the loss is a mean over, where `X` stands for more of them (see `compressed`). Default: n.

    Notes
    -----
    One eigendecomposition of ``X X'`` or ``X'X``, whichever is smaller; none of the cost depends on `steps`.

    Examples
    --------
    >>> X, y, theta = np.array([[1.0, 2.0]]), np.array([3.0]), np.zeros(2)
    >>> for _ in range(7):
    ...     theta = theta + 0.1 * X.T @ (y - X @ theta)
    >>> bool(np.allclose(theta, descent_operator(X, 0.1, 7).T @ y))
    True
    """
    if steps < 1:
        raise InputError(f"steps={steps} must be at least 1")
    return _operator(X, rate, rows, lambda x: _geometric_sum(x, steps))


def proximal_operator(X: Array, rate: float, rows: int | None = None) -> Array:
    """Return Z (n, d) such that ``theta + Z' (y - X theta)`` minimises the local loss plus a pull back to theta.

    That is ``||y - X t||^2 / (2 n) + ||t - theta||^2 / (2 rate)``; parameters as for `descent_operator`.

    Examples
    --------
    >>> proximal_operator(np.array([[2.0]]), rate=1.0)     # t = (2 y + theta) / (4 + 1)
    array([[0.4]])
    """
    return _operator(X, rate, rows, lambda x: 1.0 / (1.0 + x))


def compressed(blocks: Iterable[tuple[Array, Array]], width: int) -> tuple[Array, Array, float]:
    """Return at most `width` rows (R, c) and a rest that have the squared errors of all given rows, for every model.

    ``||y - X theta||^2 = ||c - R theta||^2 + rest``, ``X'X = R'R`` and ``X'y = R'c``: R and c are triangular factors.
    Blocks of no more than `width` rows altogether stay as they are.

    Parameters
    ----------
    blocks : pairs of (n_b, width) and (n_b,) arrays
        The rows, in pieces: memory is that of one of them and of ``width^2`` numbers.

    Examples
    --------
    >>> X, y = np.array([[1.0], [2.0], [2.0]]), np.array([1.0, 1.0, 0.0])
    >>> R, c, rest = compressed([(X, y)], width=1)
    >>> bool(np.isclose(np.sum((y - 2.0 * X[:, 0]) ** 2), np.sum((c - 2.0 * R[:, 0]) ** 2) + rest))
    True
    """
    held, rest = np.zeros((0, width + 1)), 0.0
    for X, y in blocks:
        held = np.vstack([held, np.column_stack([X, y])])
        if len(held) > width:
            triangle = scipy.linalg.qr(held, mode="r", check_finite=False)[0]
            held, left = triangle[:width], triangle[width : width + 1]
            rest += float(np.sum(left[:, -1] ** 2))
    return np.ascontiguousarray(held[:, :-1]), np.ascontiguousarray(held[:, -1]), rest


def _operator(X: Array, rate: float, rows: int | None, factor: Callable[[Array], Array]) -> Array:
    """Return ``(rate / n) P X`` with ``P = factor(rate X X' / n)``, a function of a symmetric matrix."""
    if not rate > 0.0:
        raise InputError(f"rate={rate} must be above 0")
    n, d = X.shape
    if n == 0:
        return np.zeros((0, d))
    scale = rate / max(1, n if rows is None else rows)
    if n <= d:
        values, V = scipy.linalg.eigh(X @ X.T, check_finite=False)
        return np.asarray((V * (scale * factor(scale * np.maximum(values, 0.0)))) @ (V.T @ X))
    values, V = scipy.linalg.eigh(X.T @ X, check_finite=False)
    return np.asarray((X @ V) * (scale * factor(scale * np.maximum(values, 0.0))) @ V.T)


def _geometric_sum(x: Array, steps: int) -> Array:
    """Return ``1 + (1 - x) + ... + (1 - x)^(steps - 1) = (1 - (1 - x)^steps) / x`` without cancellation near 0."""
    small = x < 0.5
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.where(x > 0.0, -np.expm1(steps * np.log1p(-np.where(small, x, 0.0))) / x, float(steps))
        far = (1.0 - (1.0 - x) ** steps) / x
    return np.where(small, near, far)
