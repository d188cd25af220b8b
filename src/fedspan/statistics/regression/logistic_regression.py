"""FedLogisticRegression: logistic and multinomial regression with standard errors, by sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from fedspan.arrays import Array, Floats
from fedspan.checks import as_table, held
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.regression.generalized_linear_model import generalized_linear_model, target_classes
from fedspan.statistics.regression.parts.design_rows import missing
from fedspan.statistics.regression.parts.regression_model import FedRegression


@dataclass(eq=False, repr=False)
class FedLogisticRegression(ClassifierMixin, FedRegression):
    """Logistic regression on rows that stay at their sites, with standard errors, tests and intervals.

    The numbers are those of the pooled rows, for any split: Newton's method on sums, without a ridge unless one is
    wanted. With more than two classes it is multinomial, and coefficients are relative to the first class.

    Parameters
    ----------
    classes : sequence, optional
        The labels in y. Default: found out. Where they are 0 and 1 sums are enough; else sites send their labels, so
        that secure sums need them here.
    fit_intercept : bool, default=True
    ridge : float, default=0.0
        Half of it, times the squared coefficients of features, is subtracted from the log-likelihood.
    offset : int or str, optional
        A column of X that is added to the logit as it is: it has no coefficient. Two classes only.
    categorical, categories, confidence, missing
        As of `FedLinearRegression`.
    site_effect : {None, "fixed"}, default=None
        An intercept of each site, relative to the first site. It needs the sums of columns of each site.
    cov_type : {"nonrobust", "HC0", "HC1", "cluster"}, default="nonrobust"
        Standard errors: of the model, or sandwich ones; "HC1" has the factor n / (n - p), as in R's sandwich, and
        "cluster" takes sites as clusters.
    max_rounds : int, default=25
        Of Newton's method, which usually takes five to eight.
    residuals : bool, default=False
        Also count residuals, in two more calls: for the report, and `residual_counts_`. Two classes only.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    classes_ : array (k,)
    coef_, intercept_ : array (1, d), array (1,)
        Of the logit of the second class. With k > 2 classes (k - 1, d) and (k - 1,): of each relative to the first.
    bse_, tvalues_, pvalues_ : array (d + 1,)
        Standard errors, statistics z and p-values: of the intercept, if there is one, then of the coefficients. With
        k > 2 classes (k - 1, d + 1).
    conf_int_ : array (d + 1, 2), or (k - 1, d + 1, 2)
    cov_params_ : array
    loglik_, null_loglik_, deviance_, aic_, bic_ : float
        `null_loglik_` is that of an intercept alone, NaN where no formula has it.
    n_obs_, df_model_, df_resid_, n_iter_ : int
    converged_ : bool
    separated_columns_, dependent_columns_ : array of int
        Columns that predict some targets exactly, and those that depend on others; a warning names them.
    site_effects_, site_effects_bse_ : array (sites,)
    residual_counts_, residual_edges_, residual_means_, categories_, sites_, run_
        As of `FedLinearRegression`.

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
    >>> model = FedLogisticRegression().fit(X, [0, 1, 0, 1, 0, 1], sites=["a", "a", "a", "b", "b", "b"])
    >>> model.coef_.round(3), model.bse_.round(3)
    (array([[0.361]]), array([2.002, 0.517]))
    """

    _: KW_ONLY
    classes: Sequence[Any] | None = None
    max_rounds: int = 25

    def decision_function(self, X: Any, *, site: Any = None) -> Floats:
        """Return the logits of the second class (n,), or with more than two classes the predictors of all (n, k)."""
        found = self._linear(X, site)
        return found[:, 0] if len(self.classes_) == 2 else np.hstack([np.zeros((len(found), 1)), found])

    def predict_proba(self, X: Any, *, site: Any = None) -> Floats:
        """Return the probability of each class (n, k); `site` is the site of all rows or of each."""
        found = self.decision_function(X, site=site)
        if found.ndim == 1:
            return np.column_stack([expit(-found), expit(found)])
        return np.asarray(softmax(found, axis=1))

    def predict(self, X: Any, *, site: Any = None) -> Any:
        """Return the most probable class of each row.

        Of a federation, return one whose sites see classes, which must be numbers, in place of their rows.
        """
        if isinstance(X, Federation):
            if self.classes_.dtype.kind not in "buif":
                raise InputError("the classes are text: predictions at the sites need classes that are numbers")
            return self._predicted(X, site, "class", self.classes_.astype(np.float64))
        found = self.decision_function(X, site=site)
        at = (found > 0).astype(np.int64) if found.ndim == 1 else found.argmax(axis=1)
        return np.asarray(self.classes_[at])

    # Inside.

    def _checked_target(self, y: Any, X: Any) -> Array:
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        found: Array = column_or_1d(held("y", y), warn=True)
        check_consistent_length(as_table(X), found)
        gaps = missing(found)
        if gaps.any() and self.missing == "refuse":
            raise InputError(f"y contains NaN in {int(gaps.sum())} rows; fill them, or leave them out (missing='drop')")
        check_classification_targets(found[~gaps])
        return found

    def _family(self) -> tuple[str, Array]:
        return ("binomial" if len(self.classes_) == 2 else "multinomial"), self.classes_

    def _learn(self, fed: Federation, offset: int) -> None:
        classes = self._given_classes()
        self.classes_ = target_classes(fed) if classes is None else classes
        many = len(self.classes_) > 2
        if many and offset >= 0:
            raise InputError(f"offset={self.offset!r} goes with two classes, and y has {len(self.classes_)}")
        found = generalized_linear_model(
            fed,
            family="multinomial" if many else "binomial",
            classes=self.classes_,
            offset=offset,
            max_rounds=self.max_rounds,
            **self._shared(),
        )
        self.deviance_, self.null_loglik_ = found.deviance, np.nan if found.null_loglik is None else found.null_loglik
        self._keep(found, None)

    def _given_classes(self) -> Array | None:
        if self.classes is None:
            return None
        found = np.unique(np.asarray(self.classes))
        if len(found) < 2:
            raise InputError(f"classes={self.classes!r} must have two different labels or more")
        return found

    def _set_coefficients(self, slopes: Floats, intercepts: Floats) -> None:
        self.coef_, self.intercept_ = slopes, intercepts

    def _figures(self) -> tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
        many = len(self.classes_) > 2
        left = [
            ("Model", "MNLogit" if many else "Logit"),
            ("Method", "MLE"),
            ("Sites", str(len(self.sites_))),
            ("converged", str(self.converged_)),
            ("Covariance Type", self.cov_type),
        ]
        right = [
            ("No. Observations", str(self.n_obs_)),
            ("Df Residuals", str(self.df_resid_)),
            ("Df Model", str(self.df_model_ * (len(self.classes_) - 1))),
        ]
        return f"{left[0][1]} Regression Results", left, [*right, *self._likelihoods()]

    def _notes(self, given: Sequence[str] | None = None) -> list[str]:
        first, *others = (str(label) for label in self.classes_)
        if (first, *others) == ("0", "1"):
            return super()._notes(given)
        what = repr(others[0]) if len(others) == 1 else "each class"
        return [*super()._notes(given), f"Coefficients are log odds of {what} against {first!r}."]

    def _likelihoods(self) -> list[tuple[str, str]]:
        found = [("Log-Likelihood", f"{self.loglik_:.5g}")]
        if np.isfinite(self.null_loglik_):
            ratio = 2 * (self.loglik_ - self.null_loglik_)
            df = self.df_model_ * max(1, len(getattr(self, "classes_", (0, 1))) - 1)
            found.insert(0, ("Pseudo R-squ.", f"{1 - self.loglik_ / self.null_loglik_:.4g}"))
            found += [
                ("LL-Null", f"{self.null_loglik_:.5g}"),
                ("LLR p-value", f"{stats.chi2.sf(ratio, max(df, 1)):.4g}"),
            ]
        return found

    def _tables(self, names: Sequence[str] | None) -> list[tuple[Any, ...]]:
        if len(self.classes_) == 2:
            return super()._tables(names)
        found = []
        m = len(self._feature_names()) + bool(self.fit_intercept)
        for i, label in enumerate(self.classes_[1:]):
            coef = np.concatenate([self.intercept_[i : i + 1] if self.fit_intercept else [], self.coef_[i]])
            parts = [coef, self.bse_[i], self.tvalues_[i], self.pvalues_[i], *self.conf_int_[i].T]
            found.append((self._row_names(names)[:m], parts, "z", self.confidence, f"y={label}"))
        return found
