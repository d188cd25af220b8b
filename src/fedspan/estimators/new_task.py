"""A task learned from a few rows, in a representation that many others share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from fedspan.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NewTask:
    """What `FedFewShotRegressor.adapt` returns.

    Attributes
    ----------
    coef : array (n,)
        ``U b``.
    loadings : array (r,)
        b.
    intercept : float
    rows : int
        How many it was learned from.
    expected_error : float
        Expected squared error of `coef`, ``sigma^2 trace((T'T)^-1)`` for the rows ``T = X U`` and the noise that the
        model was trained with, if U is right; ``sigma^2 r / (m - r - 1)`` on average over white rows, which is infinite
        up to m = r + 1. With a ridge, what it biases is added.
    residual_variance : float
        Mean squared residual per degree of freedom, NaN where there is none. If it is many times the model's
        ``noise_variance_``, this task does not fit the representation.
    """

    coef: Array
    loadings: Array
    intercept: float
    rows: int
    expected_error: float
    residual_variance: float

    def predict(self, X: Any) -> Array:
        """Predict rows (m, n)."""
        table = np.asarray(X, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(self.coef):
            raise InputError(f"X has the shape {table.shape}, and must have {len(self.coef)} columns")
        return np.asarray(table @ self.coef + self.intercept)

    def score(self, X: Any, y: Any) -> float:
        """Return the coefficient of determination R^2."""
        return float(r2_score(y, self.predict(X)))


def learned_task(X: Array, y: Array, U: Array, *, intercept: bool, ridge: float, noise_variance: float) -> NewTask:
    """Learn a task by least squares in r dimensions, with an optional ridge; too few rows without one are refused."""
    (m, _), r = X.shape, U.shape[1]
    unknowns = r + intercept
    if isinstance(ridge, bool) or not isinstance(ridge, int | float | np.number) or not 0.0 <= ridge < np.inf:
        raise InputError(f"ridge={ridge!r} must be a finite number of at least 0")
    if m < unknowns and ridge == 0.0:
        raise InputError(
            f"adapt: {m} rows do not decide {unknowns} unknowns: give at least {unknowns} rows (twice as many are "
            "advisable), or a ridge above 0"
        )
    T = X @ U
    centre, level = (T.mean(axis=0), float(y.mean())) if intercept else (np.zeros(r), 0.0)
    left, sizes, right = np.linalg.svd(T - centre, full_matrices=False)
    sizes = np.where(sizes > max(T.shape) * np.finfo(float).eps * sizes.max(initial=0.0), sizes, 0.0)
    shrunk = np.divide(sizes, sizes**2 + ridge, out=np.zeros_like(sizes), where=sizes > 0.0)
    b = right.T @ (shrunk * (left.T @ (y - level)))
    bias = b - right.T @ (shrunk * sizes * (right @ b))  # what the ridge takes from a truth like the estimate
    error = noise_variance * float(np.sum(shrunk**2)) + float(bias @ bias)
    residual = T @ b - y + (level - centre @ b)
    free = m - unknowns
    variance = float(residual @ residual) / free if free > 0 else float("nan")
    if ridge == 0.0 and m < 2 * unknowns:
        warnings.warn(
            f"adapt: {m} rows for {unknowns} unknowns amplify the noise: the expected squared error of the "
            f"coefficients is {error:.2g} with these rows, and infinite on average up to {unknowns + 1} rows. Take at "
            f"least {2 * unknowns} rows, or a ridge",
            stacklevel=3,
        )
    return NewTask(U @ b, b, level - float(centre @ b), m, error, variance)
