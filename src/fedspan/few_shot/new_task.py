"""A task learned from a few rows, in a representation that many others share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from fedspan.arrays import Floats
from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.few_shot.parts.tasks import warn


@dataclass(frozen=True, eq=False)
class NewTask:
    """A regression that `FedFewShotRegressor.adapt` has learned.

    Attributes
    ----------
    coef : array (n,)
        ``U b``.
    loadings : array (r,)
        b.
    intercept : float
    rows : int
        Number of rows it was learned from.
    expected_error : float
        Expected squared error of `coef` for a task like those of the training: the sum of the noise of these rows
        (``sigma^2 trace((T'T)^-1)`` for ``T = X U``; on average over white rows ``sigma^2 r / (m - r - 1)``, which is
        infinite up to m = r + 1), of what the rows do not decide or a ridge shrinks, and of the error of the
        representation. Malicious sites in the training can make the true error larger.
    residual_variance : float
        Mean squared residual per degree of freedom, NaN without any. If it is many times the model's
        ``noise_variance_``, this task does not fit the representation.
    """

    coef: Floats
    loadings: Floats
    intercept: float
    rows: int
    expected_error: float
    residual_variance: float

    def predict(self, X: Any) -> Floats:
        """Predict rows (m, n)."""
        table = np.asarray(X, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(self.coef):
            raise InputError(f"X has the shape {table.shape}, and must have {len(self.coef)} columns")
        bad = int(np.sum(~np.isfinite(table).all(axis=1)))
        if bad:
            raise InputError(f"X contains NaN or infinity in {bad} rows: fill them, or leave them out")
        return np.asarray(table @ self.coef + self.intercept)

    def score(self, X: Any, y: Any) -> float:
        """Return the coefficient of determination R^2."""
        return float(r2_score(y, self.predict(X)))


@dataclass(frozen=True, eq=False)
class TaskPrior:
    """A model's knowledge of tasks before it sees a row of a new one.

    `basis` (n, r) is U, `moment` (r, r) the second moment of the tasks' b, and `feature_variance` the mean square of a
    feature. `off_by` is the expected squared error of ``U b`` for the best b, since U was learned from noisy rows.
    """

    basis: Floats
    moment: Floats
    noise_variance: float
    off_by: float
    feature_variance: float
    intercept: bool

    @property
    def ridge(self) -> float:
        """Penalty on ``||b||^2`` that suits a task like the others: noise variance over mean square of b."""
        size = float(np.trace(self.moment)) / len(self.moment)
        return self.noise_variance / size if size > 0.0 else 0.0


def checked_ridge(ridge: Any) -> None:
    """Refuse a penalty that is neither "auto" nor a number of at least 0."""
    if not isinstance(ridge, str) or ridge != "auto":
        real_number("ridge", ridge, least=0, why=", or 'auto'")


def learned_task(X: Floats, y: Floats, known: TaskPrior, ridge: Any) -> NewTask:
    """Learn a task by least squares in r dimensions, with an optional ridge; refuse too few rows without one."""
    U, (m, _), r = known.basis, X.shape, known.basis.shape[1]
    unknowns = r + known.intercept
    checked_ridge(ridge)
    ridge = known.ridge if isinstance(ridge, str) else float(ridge)
    if m < unknowns and ridge == 0.0:
        raise InputError(
            f"adapt: {m} rows do not decide {unknowns} unknowns: give at least {unknowns} rows (better twice as many), "
            "or a ridge above 0"
        )
    T = X @ U
    centre, level = (T.mean(axis=0), float(y.mean())) if known.intercept else (np.zeros(r), 0.0)
    left, sizes, right = np.linalg.svd(T - centre, full_matrices=False)
    sizes = np.where(sizes > max(T.shape) * np.finfo(float).eps * sizes.max(initial=0.0), sizes, 0.0)
    shrunk = np.divide(sizes, sizes**2 + ridge, out=np.zeros_like(sizes), where=sizes > 0.0)
    b = right.T @ (shrunk * (left.T @ (y - level)))
    missed = np.eye(r) - right.T @ ((shrunk * sizes)[:, None] * right)  # of the true b: undecided, or shrunk
    noise = known.noise_variance + known.feature_variance * known.off_by  # what U misses acts like noise, too
    error = noise * float(np.sum(shrunk**2)) + float(np.trace(missed @ known.moment @ missed)) + known.off_by
    residual = T @ b - y + (level - centre @ b)
    free = m - unknowns
    variance = float(residual @ residual) / free if free > 0 else float("nan")
    decided = int(np.count_nonzero(sizes))
    if ridge == 0.0 and decided < r:
        warn(
            f"adapt: these {m} rows decide {decided} of {r} directions: the others are taken as zero, and the expected "
            f"squared error of the coefficients is {error:.2g}. Take other rows, or a ridge"
        )
    elif ridge == 0.0 and m < 2 * unknowns:
        warn(
            f"adapt: {m} rows for {unknowns} unknowns amplify the noise: the expected squared error of the "
            f"coefficients is {error:.2g}. Take at least {2 * unknowns} rows, or a ridge"
        )
    return NewTask(U @ b, b, level - float(centre @ b), m, error, variance)
