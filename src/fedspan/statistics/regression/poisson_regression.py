"""FedPoissonRegression: regression of counts with standard errors, by sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.regression.generalized_linear_model import generalized_linear_model
from fedspan.statistics.regression.parts.regression_model import FedRegression


@dataclass(eq=False, repr=False)
class FedPoissonRegression(RegressorMixin, FedRegression):
    """Poisson regression on rows that stay at their sites, with standard errors, tests and intervals.

    The logarithm of the mean is linear in the columns. The numbers are those of the pooled rows, for any split:
    Newton's method on sums.

    Parameters
    ----------
    fit_intercept : bool, default=True
    ridge : float, default=0.0
        Half of it, times the squared coefficients of features, is subtracted from the log-likelihood.
    offset : int or str, optional
        A column of X that is added to the logarithm of the mean as it is, such as the logarithm of the time at risk:
        not the time itself.
    categorical, categories, confidence, missing
        As of `FedLinearRegression`.
    site_effect, cov_type, max_rounds
        As of `FedLogisticRegression`.
    residuals : bool, default=False
        Also count residuals, in two more calls: for the report, and `residual_counts_`.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    coef_, intercept_ : array (d,), float
    bse_, tvalues_, pvalues_ : array (d + 1,)
        Standard errors, statistics z and p-values: of the intercept, if there is one, then of the coefficients.
    conf_int_ : array (d + 1, 2)
    cov_params_ : array (d + 1, d + 1)
    loglik_, null_loglik_, deviance_, pearson_chi2_, aic_, bic_ : float
    n_obs_, df_model_, df_resid_, n_iter_ : int
    converged_ : bool
    separated_columns_, dependent_columns_ : array of int
        Columns along which all counts are 0, and those that depend on others; a warning names them.
    site_effects_, site_effects_bse_ : array (sites,)
    residual_counts_, residual_edges_, residual_means_, categories_, sites_, run_
        As of `FedLinearRegression`.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = FedPoissonRegression().fit(X, [1, 2, 3, 8], sites=["a", "a", "b", "b"])
    >>> model.coef_.round(3), model.bse_.round(3)
    (array([0.715]), array([0.717, 0.291]))
    """

    _: KW_ONLY
    max_rounds: int = 25

    def predict(self, X: Any, *, site: Any = None) -> Any:
        """Return the mean count of each row; `site` is the site of all rows or of each.

        Of a federation, return one whose sites see mean counts in place of their rows.
        """
        if isinstance(X, Federation):
            return self._predicted(X, site, "log")
        return np.exp(np.clip(self._linear(X, site)[:, 0], -700.0, 700.0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    # Inside.

    def _checked_target(self, y: Any, X: Any) -> Array:
        found = super()._checked_target(y, X)
        if (found < 0).any():
            raise InputError(f"y has {int((found < 0).sum())} values below 0, and must hold counts")
        return found

    def _family(self) -> tuple[str, Array]:
        return "poisson", np.zeros(0)

    def _learn(self, fed: Federation, offset: int) -> None:
        found = generalized_linear_model(
            fed, family="poisson", offset=offset, max_rounds=self.max_rounds, **self._shared()
        )
        self.deviance_, self.pearson_chi2_ = found.deviance, found.pearson
        self.null_loglik_ = np.nan if found.null_loglik is None else found.null_loglik
        self._keep(found, None)

    def _figures(self) -> tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
        left = [
            ("Model", "GLM"),
            ("Model Family", "Poisson"),
            ("Link Function", "Log"),
            ("Method", "IRLS"),
            ("Sites", str(len(self.sites_))),
            ("No. Iterations", str(self.n_iter_)),
            ("Covariance Type", self.cov_type),
        ]
        right = [
            ("No. Observations", str(self.n_obs_)),
            ("Df Residuals", str(self.df_resid_)),
            ("Df Model", str(self.df_model_)),
            ("Log-Likelihood", f"{self.loglik_:.5g}"),
            ("Deviance", f"{self.deviance_:.5g}"),
            ("Pearson chi2", f"{self.pearson_chi2_:.3g}"),
            ("AIC", f"{self.aic_:.5g}"),
            ("BIC", f"{self.bic_:.5g}"),
        ]
        return "Generalized Linear Model Regression Results", left, right
