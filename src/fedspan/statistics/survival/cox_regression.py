"""FedCoxRegression: proportional hazards on rows that stay at their sites."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedspan.arrays import Floats
from fedspan.checks import frames_inside, one_of, printable, real_number, whole_number
from fedspan.statistics.regression.parts.regression_fit import wald_tests
from fedspan.statistics.regression.parts.regression_table import coefficients, head
from fedspan.statistics.regression.parts.treatment_coding import TreatmentCoding
from fedspan.statistics.survival.cox_model import CoxFit, cox_model
from fedspan.statistics.survival.cox_sums import TIES
from fedspan.statistics.survival.event_counts import checked_grid
from fedspan.statistics.survival.survival_model import FedSurvival


@dataclass(eq=False, repr=False)
class FedCoxRegression(TreatmentCoding, FedSurvival):
    """Cox regression on rows that stay at their sites, with standard errors, tests and intervals.

    The numbers are those of the pooled rows, exactly if the grid has all times of events. Otherwise they are those of
    rows whose events are moved up to the grid, and whose censored times are moved down. Only sums at grid points leave
    a site, and secure sums can carry them.

    Parameters
    ----------
    ties : {"efron", "breslow"}, default="efron"
        How events at the same time count.
    times : sequence of numbers, optional
        The public grid, such as ``range(0, 1000, 7)``. Default: all times of events, which the sites then send: for
        embedded federations.
    strata : {None, "site"}, default=None
        "site": each site has a baseline hazard of its own, and rows are compared within their site. No times are
        needed; there is no common baseline, and no check of proportional hazards.
    categorical, categories, confidence, missing
        As of `FedLinearRegression`.
    ridge : float, default=0.0
        Half of it, times the squared coefficients, is subtracted from the log partial likelihood.
    max_rounds : int, default=25
        Of Newton's method, which usually takes five or six.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    coef_ : array (d,)
        Logarithms of hazard ratios; 0 for columns that are constant or depend on others.
    bse_, tvalues_, pvalues_ : array (d,)
        Standard errors, statistics z and p-values.
    conf_int_ : array (d, 2)
    cov_params_ : array (d, d)
    loglik_, null_loglik_ : float
    times_, baseline_hazard_, baseline_cumulative_hazard_, baseline_survival_ : array (m,)
        The grid, and Breslow's estimate for a row at the means of the columns.
    mean_ : array (d,)
        These means.
    ph_transforms_ : tuple of str
        Functions of time for the check of proportional hazards: "km", "rank", "identity", and "log" for times above 0.
    ph_statistics_, ph_pvalues_ : array (t, d)
        For each of them, the chi-square and p-value of each column: a small p-value indicates that its hazard
        ratio changes with time.
    n_obs_, n_events_, n_iter_ : int
    converged_ : bool
    dependent_columns_ : array of int
    sites_ : tuple of str
    run_ : RunRecord

    Examples
    --------
    >>> X = np.array([[1.0], [0.0], [1.0], [0.0], [1.0], [0.0]])
    >>> y = np.column_stack([[2.0, 5.0, 3.0, 1.0, 6.0, 8.0], [1, 1, 1, 1, 0, 1]])
    >>> FedCoxRegression(times=range(1, 9)).fit(X, y, sites=["a", "b"] * 3).coef_.round(3)
    array([0.069])
    """

    _: KW_ONLY
    ties: str = "efron"
    times: Sequence[float] | None = None
    strata: str | None = None
    categorical: Sequence[int | str] | None = None
    categories: dict[str, Sequence[str]] | None = None
    ridge: float = 0.0
    confidence: float = 0.95
    missing: str = "refuse"
    max_rounds: int = 25

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit to a table with times and events (and ``sites``), or to a federation that has them."""
        one_of("ties", self.ties, TIES)
        one_of("missing", self.missing, ("refuse", "drop"))
        if self.strata is not None:
            one_of("strata", self.strata, ("site",))
        real_number("ridge", self.ridge, least=0)
        real_number("confidence", self.confidence, above=0, below=1, why=", such as 0.95")
        whole_number("max_rounds", self.max_rounds, 1)
        with self._fitting(X, self._target(X, y), sites, sample_weight=sample_weight) as fed:
            found = cox_model(
                self._coded(fed),
                ties=self.ties,
                times=None if self.times is None else checked_grid(self.times),
                stratified=self.strata == "site",
                ridge=float(self.ridge),
                drop=self.missing == "drop",
                max_rounds=self.max_rounds,
                names=tuple(self.coefficient_names()) if self.categories_ else self._names(),
            )
            self._keep(found)
        return self

    def predict(self, X: Any) -> Floats:
        """Return the hazard of rows relative to a row at the means of the columns."""
        check_is_fitted(self)
        rows = self._coded_rows(X)
        return np.asarray(np.exp((rows - self.mean_) @ self.coef_))

    def predict_survival(self, X: Any, times: Any = None) -> Floats:
        """Return the survival of rows at times (n, t); default: the grid."""
        ratio = self.predict(X)
        at = self.times_ if times is None else np.asarray(times, dtype=np.float64)
        cumulative = np.concatenate([[0.0], self.baseline_cumulative_hazard_])
        return np.exp(-np.outer(ratio, cumulative[np.searchsorted(self.times_, at, "right")]))

    def summary(self, names: Sequence[str] | None = None) -> str:
        """Return the table of results; `names` are those of the columns, where the model does not know them."""
        check_is_fitted(self)
        ratio = 2 * (self.loglik_ - self.null_loglik_)
        df = max(1, len(self.coef_) - len(self.dependent_columns_))
        left = [
            ("Model", "PH Reg"),
            ("Ties", self.ties.capitalize()),
            ("Sites", str(len(self.sites_))),
            ("Strata", self.strata or "none"),
            ("converged", str(self.converged_)),
        ]
        right = [
            ("No. Observations", str(self.n_obs_)),
            ("No. Events", str(self.n_events_)),
            ("Log-Likelihood", f"{self.loglik_:.5g}"),
            ("LL-Null", f"{self.null_loglik_:.5g}"),
            ("LLR p-value", f"{stats.chi2.sf(ratio, df):.4g}"),
        ]
        rows = self.coefficient_names(names)
        parts = [self.coef_, self.bse_, self.tvalues_, self.pvalues_, *self.conf_int_.T]
        lines = [*head("Cox Regression Results", left, right), *coefficients(rows, parts, "z", self.confidence)]
        notes = []
        if len(self.ph_pvalues_):
            shown = (f"{name} {p:.3f}" for name, p in zip(rows, self.ph_pvalues_[0], strict=True))
            notes = [f"[2] Proportional hazards, p-values ({self.ph_transforms_[0]}): {', '.join(shown)}."]
        ratios = ", ".join(f"{name} {value:.3f}" for name, value in zip(rows, np.exp(self.coef_), strict=True))
        return printable("\n".join([*lines, "", "Notes:", f"[1] Hazard ratios: {ratios}.", *notes]))

    # Inside.

    def _check_weights(self) -> None:
        """Accept rows with weights."""

    def _keep(self, found: CoxFit) -> None:
        self.coef_, self.cov_params_ = found.coef, found.covariance
        self.bse_ = np.sqrt(np.diag(found.covariance))
        self.tvalues_, self.pvalues_, self.conf_int_ = wald_tests(self.coef_, self.bse_, self.confidence)
        self.loglik_, self.null_loglik_ = found.loglik, found.null_loglik
        self.n_obs_, self.n_events_, self.n_iter_ = found.n, found.deaths, found.rounds
        self.converged_, self.mean_ = found.converged, found.centre
        self.dependent_columns_ = np.flatnonzero(~found.kept)
        self.times_, self.baseline_hazard_ = found.grid, found.hazard
        self.baseline_cumulative_hazard_ = np.cumsum(found.hazard)
        self.baseline_survival_ = np.exp(-self.baseline_cumulative_hazard_)
        tests = np.zeros((0, len(self.coef_))) if found.proportional is None else found.proportional
        self.ph_transforms_, self.ph_statistics_, self.ph_pvalues_ = found.transforms, tests, stats.chi2.sf(tests, 1)
        names = self.coefficient_names()
        self._warn_of_dependent(names)
        if not found.converged:
            columns = np.flatnonzero(np.zeros(0) if found.infinite is None else found.infinite)
            which = ", ".join(names[j] for j in columns[:10])
            warnings.warn(
                f"Newton's method has not converged in {found.rounds} rounds: the likelihood may have no maximum, "
                f"because a combination of {which} puts all early events first; leave such columns out, or use a ridge",
                ConvergenceWarning,
                stacklevel=frames_inside(),
            )
