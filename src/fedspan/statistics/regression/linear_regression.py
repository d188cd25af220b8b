"""FedLinearRegression: least squares with standard errors, by sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import RegressorMixin

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.statistics.regression.least_squares import least_squares
from fedspan.statistics.regression.noisy_least_squares import noisy_least_squares
from fedspan.statistics.regression.parts.regression_fit import COVARIANCES
from fedspan.statistics.regression.parts.regression_model import FedRegression


@dataclass(eq=False, repr=False)
class FedLinearRegression(RegressorMixin, FedRegression):
    """Linear regression on rows that stay at their sites, with standard errors, tests and intervals.

    The numbers are those of the pooled rows, for any split. Four calls, five with robust standard errors; only sums are
    needed, so that secure sums carry them.

    Parameters
    ----------
    fit_intercept : bool, default=True
    ridge : float, default=0.0
        Added to the sum of squares: this times the squared coefficients, without intercept and site effects.
    offset : int or str, optional
        A column of X that is added to the prediction as it is: it has no coefficient.
    categorical : sequence of int or str, optional
        Columns of categories, of text or numbers, coded as R codes factors. Each name but the first, in the order of
        the text, has a coefficient relative to the first.
    categories : dict of column to list of names, optional
        The names, in an order of your own. Default: found out; secure sums need them here.
    site_effect : {None, "fixed", "random"}, default=None
        An intercept of each site: as columns, relative to the first site; or drawn from a normal distribution, by
        restricted maximum likelihood. Both need the number of rows and the sums of columns of each site.
    cov_type : {"nonrobust", "HC0", "HC1", "HC2", "HC3", "cluster"}, default="nonrobust"
        Standard errors: of the model, or sandwich ones as statsmodels names them; "cluster" takes sites as clusters.
    confidence : float, default=0.95
        Of the intervals.
    missing : {"refuse", "drop"}, default="refuse"
        What happens to rows with missing values.
    privacy : GaussianMoments, optional
        Noise on the sums, charged to the sites' ledgers. Its bounds are those of the columns and, last, of the target.
        Standard errors allow for the noise. Not with offset, site_effect, robust standard errors or missing="drop".
    residuals : bool, default=False
        Also count residuals, in two more calls: for the report, and `residual_counts_`.
    random_state, verbose : int, optional
        Nothing is random without privacy; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    coef_, intercept_ : array (d,), float
        0 for columns that are constant or depend on others.
    bse_, tvalues_, pvalues_ : array (d + 1,)
        Standard errors, statistics and p-values: of the intercept, if there is one, then of the coefficients.
    conf_int_ : array (d + 1, 2)
    cov_params_ : array (d + 1, d + 1)
    scale_, loglik_, rsquared_, rsquared_adj_, aic_, bic_ : float
    n_obs_, df_model_, df_resid_ : int
    site_effects_, site_effects_bse_ : array (sites,)
        In the order of ``sites_``; those of random effects are predictions, and have no errors.
    random_variance_ : float
        Of the random effects.
    dependent_columns_ : array of int
        Among the coefficients, whose names `coefficient_names` returns.
    categories_ : tuple of tuples of str
    residual_counts_, residual_edges_ : array
        With `residuals`: numbers of Pearson's residuals below, between and above the edges; NaN where they are few.
    residual_means_ : array (bins, 3)
        By bin of the linear predictor: its mean, that of the residuals, and its standard error.
    sites_ : tuple of str
    run_ : RunRecord

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> model = FedLinearRegression().fit(X, [3.0, 5.0, 7.0, 9.5], sites=["a", "a", "b", "b"])
    >>> model.coef_, model.intercept_
    (array([2.15]), 0.75)
    >>> model.bse_.round(3)
    array([0.237, 0.087])
    """

    _effects = ("fixed", "random")
    _covariances = COVARIANCES

    _: KW_ONLY
    privacy: GaussianMoments | None = None

    def predict(self, X: Any, *, site: Any = None) -> Any:
        """Return predictions for rows; `site` is the site of all rows or of each, for models with effects of sites.

        Of a federation, return one whose sites see predictions in place of their rows.
        """
        if isinstance(X, Federation):
            return self._predicted(X, site, "identity")
        return self._linear(X, site)[:, 0]

    # Inside.

    def _check_weights(self) -> None:
        if self.privacy is not None:
            raise InputError("privacy=... goes without sample_weight: a weight would multiply what one row can do")

    def _check(self) -> None:
        super()._check()
        check_moments(self.privacy)
        if self.site_effect == "random" and (self.ridge or self.cov_type != "nonrobust"):
            raise InputError("site_effect='random' goes without ridge and with cov_type='nonrobust'")
        if self.privacy is not None:
            apart = {
                "offset": None,
                "categorical": None,
                "site_effect": None,
                "cov_type": "nonrobust",
                "missing": "refuse",
                "residuals": False,
            }
            for name, plain in apart.items():
                if getattr(self, name) != plain:
                    raise InputError(
                        f"{name}={getattr(self, name)!r} does not go with privacy=..., which has noise in sums"
                    )

    def _family(self) -> tuple[str, Array]:
        return "gaussian", np.zeros(0)

    def _learn(self, fed: Federation, offset: int) -> None:
        if self.privacy is not None:
            found = noisy_least_squares(
                fed,
                privacy=self.privacy,
                n_columns=self.n_features_in_ + 1,
                intercept=bool(self.fit_intercept),
                ridge=float(self.ridge),
            )
        else:
            found = least_squares(fed, offset=offset, **self._shared())
        rank = int(found.design.kept.sum())
        exact = self.cov_type == "nonrobust" and self.site_effect != "random"
        self._keep(found, found.n - rank if exact and found.n > rank else None)
        self._squares(found.squares, found.total_squares)
        if self.site_effect == "random":
            self.site_effects_, self.random_variance_ = found.effects, found.between

    def _squares(self, squares: float, total: float) -> None:
        """Set the shares of the squares that the model explains, and its test."""
        rows = self.n_obs_ - bool(self.fit_intercept)
        self.rsquared_ = 1 - squares / total if total > 0 else 0.0
        self.rsquared_adj_ = 1 - (1 - self.rsquared_) * rows / self.df_resid_ if self.df_resid_ > 0 else 0.0
        first = int(self.fit_intercept)
        kept = np.setdiff1d(np.arange(len(self.coef_)), self.dependent_columns_)
        cov = self.cov_params_[np.ix_(first + kept, first + kept)]
        self.fvalue_ = self.f_pvalue_ = 0.0
        if len(kept) and self.df_resid_ > 0 and np.isfinite(cov).all() and (np.diag(cov) > 0).all():
            unit = np.sqrt(np.diag(cov))
            b = self.coef_[kept] / unit
            self.fvalue_ = float(b @ np.linalg.pinv(cov / np.outer(unit, unit), hermitian=True, rcond=1e-15) @ b)
            self.fvalue_ /= len(kept)
            self.f_pvalue_ = float(stats.f.sf(self.fvalue_, len(kept), self.df_resid_))

    def _statistic(self) -> str:
        return "t" if self.cov_type == "nonrobust" and self.site_effect != "random" else "z"

    def _figures(self) -> tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
        mixed = self.site_effect == "random"
        left = [
            ("Model", "MixedLM" if mixed else "OLS"),
            ("Method", "REML" if mixed else "Least Squares"),
            ("Sites", str(len(self.sites_))),
            ("No. Observations", str(self.n_obs_)),
            ("Df Residuals", str(self.df_resid_)),
            ("Df Model", str(self.df_model_)),
            ("Covariance Type", self.cov_type),
        ]
        right = [
            ("R-squared", f"{self.rsquared_:.3f}"),
            ("Adj. R-squared", f"{self.rsquared_adj_:.3f}"),
            ("F-statistic", f"{self.fvalue_:.4g}"),
            ("Prob (F-statistic)", f"{self.f_pvalue_:.3g}"),
            ("Log-Likelihood", f"{self.loglik_:.5g}"),
            ("AIC", f"{self.aic_:.4g}"),
            ("BIC", f"{self.bic_:.4g}"),
            ("Scale", f"{self.scale_:.4g}"),
        ]
        if mixed:
            right[0:4] = [("Site Var", f"{self.random_variance_:.4g}")]
        return ("Mixed Linear Model Regression Results" if mixed else "OLS Regression Results"), left, right

    def _notes(self, given: Sequence[str] | None = None) -> list[str]:
        notes = super()._notes(given)
        if self.privacy is not None:
            notes[0] = f"{len(self.sites_)} sites; sums with noise: {self.privacy!r}."
        if self.df_resid_ > 0 and not math.isfinite(self.scale_):
            notes.append("The scale is unknown: there are no more rows than coefficients.")
        return notes
