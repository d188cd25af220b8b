"""What every regression has in the end: coefficients, their covariance, and the fit's figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedspan.arrays import Matrix
from fedspan.errors import InputError
from fedspan.statistics.regression.parts.design_rows import Design

COVARIANCES = ("nonrobust", "HC0", "HC1", "HC2", "HC3", "cluster")


@dataclass(frozen=True)
class RegressionFit:
    """A fitted regression of q columns.

    Attributes
    ----------
    design : Design
    coef : array (q,), or (q, r) for r targets
        Of intercept, features and site effects, in their own units.
    covariance : array (r q, r q)
        Target by target; NaN where a column is in line with others.
    n, weight : int, float
        Rows, and the sum of their weights.
    loglik, scale : float
    converged, rounds : bool, int
    separated : array of bool (q,), optional
        The columns that separate the targets.
    """

    design: Design
    coef: Matrix
    covariance: Matrix
    n: int
    weight: float
    loglik: float
    scale: float
    converged: bool
    rounds: int
    separated: NDArray[np.bool_] | None


def wald_tests(coef: Matrix, errors: Matrix, confidence: float, df: float | None = None) -> tuple[Matrix, ...]:
    """Return the statistics of coefficients, their p-values, and the ends (..., 2) of their intervals.

    `df` are the degrees of freedom of t, none for z.
    """
    known = stats.norm if df is None else stats.t(df)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = coef / errors
    reach = known.ppf(1 - (1 - confidence) / 2) * errors
    return values, 2 * known.sf(np.abs(values)), np.stack([coef - reach, coef + reach], axis=-1)


def sandwich(bread: Matrix, meat: Matrix, cov_type: str, n: int, p: int, clusters: int) -> Matrix:
    """Return the covariance that holds without the model's variance, with the small-sample factors of statsmodels."""
    if cov_type == "cluster" and clusters < 2:
        raise InputError("cov_type='cluster' takes sites as clusters, and needs rows at two sites or more")
    factor = 1.0
    if cov_type == "HC1":
        factor = n / (n - p)
    elif cov_type == "cluster":
        factor = clusters / (clusters - 1) * (n - 1) / (n - p)
    return np.asarray(factor * bread @ meat @ bread)
