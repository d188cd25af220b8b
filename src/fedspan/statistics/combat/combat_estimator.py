"""FedComBat: the rows of all sites as if they came from one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.base import FedEstimator, FedTransformer
from fedspan.checks import frames_inside, list_of, real_number, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.combat.site_adjustment import adjusted, adjusted_site, site_adjustment
from fedspan.sums.columns import column_number
from fedspan.sums.moments import refuse_bad_values


@dataclass(eq=False, repr=False)
class FedComBat(OneToOneFeatureMixin, FedTransformer, FedEstimator):
    """Adjust features for the location and scale of their site (ComBat), and keep the effects of covariates.

    W. E. Johnson, C. Li and A. Rabinovic, "Adjusting batch effects in microarray expression data using empirical Bayes
    methods", Biostatistics 2007; for measurements of several scanners, J.-P. Fortin et al. (2018). The numbers are
    those of the pooled rows with the site as the batch.

    Parameters
    ----------
    covariates : sequence of int or str, optional
        Columns whose effect on the features is kept, such as age and sex. They stay as they are. Text must be encoded
        as numbers first.
    controls : int or str, optional
        A column that is not 0 in the rows to fit on, such as those of healthy people. All rows are then adjusted.
    empirical_bayes : bool, default=True
        Whether the estimates of a feature borrow strength from those of the other features.
    parametric : bool, default=True
        A normal and an inverse gamma prior; else the distribution of the other features' estimates.
    mean_only : bool, default=False
        Adjust locations alone.
    tol : float, default=1e-4
        Relative change at which the iteration of the parametric estimate ends.
    random_state, verbose : int, optional
        Nothing is random; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    features_, covariates_ : array of int (p,), (c,)
        The columns that are adjusted, and those whose effect is kept.
    gamma_, delta_ : array (sites, p)
        Location and scale (a variance) of each site, in units of ``scale_``; a site without rows to fit on has 0 and 1.
    gamma_hat_, delta_hat_ : array (sites, p)
        The same without strength from other features.
    mean_, scale_ : array (p,)
        Of a row whose covariates are 0, and the pooled deviation.
    coef_ : array (c, p)
        Effects of the covariates.
    n_rows_ : array of int (sites,)
        Rows that were fitted on.
    sites_ : tuple of str
    run_ : RunRecord

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(60, 5)), np.arange(60) % 2
    >>> X[site == 1] = 3.0 + 2.0 * X[site == 1]
    >>> flat = FedComBat().fit_transform(X, sites=site)
    >>> [round(float(np.ptp([rows[site == s].mean() for s in (0, 1)])), 1) for rows in (X, flat)]
    [2.9, 0.0]
    """

    _: KW_ONLY
    covariates: Sequence[int | str] | None = None
    controls: int | str | None = None
    empirical_bayes: bool = True
    parametric: bool = True
    mean_only: bool = False
    tol: float = 1e-4

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the location and scale of each site of a table (and ``sites``), or of a federation."""
        for name in ("empirical_bayes", "parametric", "mean_only"):
            true_or_false(name, getattr(self, name))
        real_number("tol", self.tol, above=0)
        with self._fitting(X, None, sites) as fed:
            names, columns = self._names(), self.n_features_in_
            kept = [column_number("covariates", one, names, columns) for one in self._listed()]
            controls = -1 if self.controls is None else column_number("controls", self.controls, names, columns)
            apart = {*kept, controls}
            if len(apart) < len(kept) + 1:
                raise InputError(f"covariates={self.covariates!r} and controls={self.controls!r} name a column twice")
            self.covariates_ = np.array(kept, dtype=np.int64)
            self.features_ = np.array([j for j in range(columns) if j not in apart], dtype=np.int64)
            if not len(self.features_):
                raise InputError("no column is left to adjust: covariates and controls take all of them")
            refuse_bad_values(fed, names)
            found = site_adjustment(
                fed,
                features=self.features_,
                covariates=self.covariates_,
                controls=controls,
                shrink=bool(self.empirical_bayes),
                normal_prior=bool(self.parametric),
                mean_only=bool(self.mean_only),
                tol=float(self.tol),
            )
            self.gamma_, self.delta_ = found.gamma, found.delta
            self.gamma_hat_, self.delta_hat_ = found.gamma_hat, found.delta_hat
            self.mean_, self.scale_, self.coef_, self.n_rows_ = found.mean, found.deviation, found.slopes, found.rows
        empty = [site for site, n in zip(self.sites_, self.n_rows_.tolist(), strict=True) if n == 0]
        if empty:
            warnings.warn(
                f"these sites have no rows to fit on, and stay as they are: {', '.join(empty[:10])}",
                stacklevel=frames_inside(),
            )
        return self

    def transform(self, X: Any, *, sites: Any = None) -> Any:
        """Return adjusted rows; `sites` has the site of each row, or of all. Of a federation, the one that adjusts."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            shift, spread = self.gamma_ * self.scale_, np.sqrt(self.delta_)
            names = np.array(self.sites_, dtype=str)
            return X.apply(
                adjusted_site, columns=self._names(), names=names, shift=shift, spread=spread, **self._form()
            )
        rows = self._validated(X)
        at = self._site_numbers(sites, len(rows))
        shift, spread = (self.gamma_ * self.scale_)[at], np.sqrt(self.delta_)[at]
        return adjusted(rows, shift=shift, spread=spread, **self._form())

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit to `X` and return it adjusted."""
        fitted = self.fit(X, y, sites=sites)
        return fitted.transform(X) if isinstance(X, Federation) else fitted.transform(X, sites=sites)

    # Inside.

    def _listed(self) -> list[int | str]:
        return [] if self.covariates is None else list_of("covariates", self.covariates, "columns")

    def _form(self) -> dict[str, Any]:
        return {"features": self.features_, "covariates": self.covariates_, "mean": self.mean_, "slopes": self.coef_}

    def _site_numbers(self, sites: Any, n: int) -> NDArray[np.int64]:
        """Return the number of each row's site."""
        if sites is None:
            if len(self.sites_) > 1:
                raise InputError("transform(X) needs sites=..., the site of each row: they are adjusted differently")
            return np.zeros(n, dtype=np.int64)
        labels = np.asarray(sites).astype(str)
        if labels.shape not in ((), (n,)):
            raise InputError(
                f"sites has the shape {labels.shape}, and must be one label, or one for each of the {n} rows"
            )
        known = {name: k for k, name in enumerate(self.sites_)}
        unknown = sorted({str(name) for name in np.unique(labels)} - known.keys())
        if unknown:
            raise InputError(f"site {unknown[0]!r} was not fitted. Fitted sites: {', '.join(self.sites_[:10])}")
        return np.array([known[str(name)] for name in np.broadcast_to(labels, (n,))], dtype=np.int64)
