"""The base of the regressions: parameters, attributes, tests and the table of results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from fedspan.arrays import Array, Vector
from fedspan.checks import as_table, frames_inside, held, one_of, printable, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.statistics.regression.parts.predicted_rows import predicted
from fedspan.statistics.regression.parts.regression_fit import RegressionFit, wald_tests
from fedspan.statistics.regression.parts.regression_table import coefficients, head
from fedspan.statistics.regression.parts.treatment_coding import TreatmentCoding, treatment_coded
from fedspan.statistics.regression.residual_bins import EDGES, residual_bins


@dataclass(eq=False, repr=False)
class FedRegression(TreatmentCoding):
    """Base of the regressions, with the parameters that they share; `FedLinearRegression` describes them."""

    #: What `site_effect` and `cov_type` may be.
    _effects: ClassVar[tuple[str, ...]] = ("fixed",)
    _covariances: ClassVar[tuple[str, ...]] = ("nonrobust", "HC0", "HC1", "cluster")

    _: KW_ONLY
    fit_intercept: bool = True
    ridge: float = 0.0
    offset: int | str | None = None
    categorical: Sequence[int | str] | None = None
    categories: dict[str, Sequence[str]] | None = None
    site_effect: str | None = None
    cov_type: str = "nonrobust"
    confidence: float = 0.95
    missing: str = "refuse"
    residuals: bool = False

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Fit to a table with targets (and ``sites``, and weights of rows), or to a federation that has them.

        A weight is the precision of a row: standard errors are those of weighted least squares, and of GLMs with
        weights of variances.
        """
        self._check()
        if not isinstance(X, Federation):
            y = self._checked_target(y, X)
        with self._fitting(X, y, sites, sample_weight=sample_weight) as fed:
            coded = self._coded(fed)
            self._learn(coded, self._offset_column())
            self._keep_residuals(coded)
        return self

    def summary(self, names: Sequence[str] | None = None, target: str = "y") -> str:
        """Return the table of results, as statsmodels prints it.

        `names` are those of the columns of X, where the model does not know them, as behind a transform. `target` is
        the name of the target.
        """
        check_is_fitted(self)
        if names is not None and len(names) != self.n_features_in_:
            raise InputError(
                f"names has {len(names)} names, and must have one for each of {self.n_features_in_} columns"
            )
        title, left, right = self._figures()
        tables = [coefficients(*one) for one in self._tables(names)]
        lines = [
            *head(title, [("Dep. Variable", target), *left], right),
            *tables[0],
            *(line for table in tables[1:] for line in table[1:]),
        ]
        notes = self._notes(names)
        if notes:
            lines += ["", "Notes:", *(f"[{i + 1}] {note}" for i, note in enumerate(notes))]
        return printable("\n".join(lines))

    # Inside.

    def _check_weights(self) -> None:
        """Accept rows with weights."""

    def _learn(self, fed: Federation, offset: int) -> None:
        raise NotImplementedError

    def _family(self) -> tuple[str, Array]:
        """Return the family of the targets, and their classes."""
        raise NotImplementedError

    def _keep_residuals(self, fed: Federation) -> None:
        """Count the residuals of the fitted model, if they are wanted."""
        for name in ("residual_counts_", "residual_edges_", "residual_means_"):
            self.__dict__.pop(name, None)
        family, classes = self._family()
        if not self.residuals or family == "multinomial":
            return
        own = np.ravel(getattr(self, "site_effects_", np.zeros(0)))
        start = np.ravel(self.intercept_) if self.fit_intercept else np.zeros(0)
        found = residual_bins(
            fed,
            coef=np.concatenate([start, np.ravel(self.coef_), own]),
            scale=float(self.scale_) if family == "gaussian" else 1.0,
            family=family,
            classes=classes,
            intercept=bool(self.fit_intercept),
            offset=self._offset_column(),
            effects=tuple(self.sites_) if len(own) else (),
            drop=self.missing == "drop",
        )
        if found is None:
            warnings.warn(
                "sites refuse to count residuals, whose bins hold few rows: there are none in the report; secure sums "
                "carry them, and residuals=False does without",
                stacklevel=frames_inside(),
            )
            return
        self.residual_counts_, self.residual_edges_ = found.counts, EDGES.copy()
        self.residual_means_ = np.column_stack([found.predictor, found.mean, found.spread])

    def _checked_target(self, y: Any, X: Any) -> Array:
        """Return targets that are numbers, or refuse them."""
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = held("y", y)
        try:
            found = np.asarray(
                column_or_1d(
                    check_array(y, ensure_2d=False, input_name="y", ensure_all_finite=False, ensure_min_samples=0),
                    warn=True,
                ),
                dtype=np.float64,
            )
        except (ValueError, TypeError) as error:
            if np.asarray(y).dtype.kind in "OUSmM":  # scikit-learn's error would show a target
                what = "text" if isinstance(error, ValueError) else "times or other things"
                raise InputError(f"y holds {what}, and {type(self).__name__} takes numbers") from None
            raise
        check_consistent_length(as_table(X), found)
        bad = int((~np.isfinite(found)).sum())
        if bad and self.missing == "refuse":
            raise InputError(f"y contains NaN or infinity in {bad} rows; fill them, or leave them out (missing='drop')")
        return found

    def _check(self) -> None:
        """Refuse parameters that can't work, before any site is contacted."""
        true_or_false("fit_intercept", self.fit_intercept)
        true_or_false("residuals", self.residuals)
        real_number("ridge", self.ridge, least=0)
        real_number("confidence", self.confidence, above=0, below=1, why=", such as 0.95")
        one_of("missing", self.missing, ("refuse", "drop"))
        one_of("cov_type", self.cov_type, self._covariances)
        if self.site_effect is not None:
            one_of("site_effect", self.site_effect, self._effects)
        whole_number("max_rounds", getattr(self, "max_rounds", 1), 1)
        if self.offset is not None and not isinstance(self.offset, str):
            whole_number("offset", self.offset, 0, why=", the number of a column, or its name")

    def _offset_column(self) -> int:
        """Return the number of the offset's column among the coded ones, -1 for none."""
        if self.offset is None:
            return -1
        at, kept = self._column("offset", self.offset), self._kept()
        if at in kept:
            raise InputError(f"offset={self.offset!r} is one of the columns of categories, and must be a number")
        return sum(len(kept[j]) - 1 if j in kept else 1 for j in range(at))

    def _shared(self) -> dict[str, Any]:
        """Return the settings that all protocols take."""
        return {
            "intercept": bool(self.fit_intercept),
            "effect": self.site_effect,
            "ridge": float(self.ridge),
            "cov_type": self.cov_type,
            "drop": self.missing == "drop",
            "names": tuple(self.coefficient_names()) if self.categories_ else self._names(),
        }

    def _keep(self, found: RegressionFit, df: float | None) -> None:
        """Set what all regressions have in the end; `df` are the degrees of freedom of t, none for z."""
        design, coef = found.design, np.atleast_2d(found.coef.T)  # (r, q)
        self.df_model_ = int(design.kept.sum()) - bool(self.fit_intercept)
        self.df_resid_ = found.n - int(design.kept.sum()) * len(coef)
        self.n_obs_, self.loglik_, self.scale_ = found.n, found.loglik, found.scale
        p = int(design.kept.sum()) * len(coef)
        self.aic_ = 2.0 * p - 2 * found.loglik
        self.bic_ = p * float(np.log(found.n)) - 2 * found.loglik
        self.converged_, self.n_iter_ = found.converged, found.rounds
        self.dependent_columns_ = np.flatnonzero(~design.kept[design.intercept : design.intercept + design.slopes])
        errors = np.sqrt(np.diag(found.covariance)).reshape(coef.shape)
        values, tails, ends = wald_tests(coef, errors, self.confidence, df)
        m = design.intercept + design.slopes
        own = slice(m, None)
        r = len(coef)
        inner = np.add.outer(np.arange(r) * design.width, np.arange(m)).ravel()
        self.cov_params_ = found.covariance[np.ix_(inner, inner)]
        parts = {"bse_": errors, "tvalues_": values, "pvalues_": tails, "conf_int_": ends}
        for name, value in parts.items():
            setattr(self, name, value[0, :m] if found.coef.ndim == 1 else value[:, :m])
        intercepts = coef[:, 0] if design.intercept else np.zeros(r)
        self._set_coefficients(coef[:, design.intercept : m], intercepts)
        if self.site_effect == "fixed":
            first = np.zeros((r, 1)) if design.intercept else np.zeros((r, 0))
            effects = np.hstack([first, coef[:, own]]), np.hstack([first, errors[:, own]])
            self.site_effects_, self.site_effects_bse_ = (one[0] if found.coef.ndim == 1 else one for one in effects)
        self._warn(found)

    def _set_coefficients(self, slopes: Vector, intercepts: Vector) -> None:
        self.coef_, self.intercept_ = slopes[0], float(intercepts[0])

    def _warn(self, found: RegressionFit) -> None:
        names = self._feature_names()
        self.separated_columns_ = np.zeros(0, dtype=np.int64)
        self._warn_of_dependent(names)
        if found.separated is not None:
            columns = found.separated[found.design.intercept : found.design.intercept + found.design.slopes]
            self.separated_columns_ = np.flatnonzero(columns)
            which = ", ".join(names[j] for j in self.separated_columns_[:10]) or "the sites"
            warnings.warn(
                f"perfect separation by {which}: some targets are predicted exactly, so that the likelihood has no "
                "maximum, and coefficients and standard errors mean nothing; leave such columns out, or use a ridge",
                ConvergenceWarning,
                stacklevel=frames_inside(),
            )
        elif not found.converged:
            warnings.warn(
                f"Newton's method has not converged in {found.rounds} rounds: raise max_rounds, or use a ridge",
                ConvergenceWarning,
                stacklevel=frames_inside(),
            )

    def _feature_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the names of the features that have coefficients."""
        at = self._offset_column()
        return [name for j, name in enumerate(self.coefficient_names(names)) if j != at]

    def _row_names(self, names: Sequence[str] | None) -> list[str]:
        effects: list[str] = []
        if self.site_effect == "fixed":
            effects = [f"site {name}" for name in (self.sites_[1:] if self.fit_intercept else self.sites_)]
        return [*(["const"] if self.fit_intercept else []), *self._feature_names(names), *effects]

    def _tables(self, names: Sequence[str] | None) -> list[tuple[Any, ...]]:
        """Return the arguments of each table of coefficients."""
        start = [self.intercept_] if self.fit_intercept else []
        coef = np.concatenate([np.ravel(start), np.ravel(self.coef_)])
        parts = [coef, self.bse_, self.tvalues_, self.pvalues_, self.conf_int_[:, 0], self.conf_int_[:, 1]]
        if self.site_effect == "fixed":
            own = slice(1 if self.fit_intercept else 0, None)
            effects, errors = self.site_effects_[own], self.site_effects_bse_[own]
            values, tails, ends = wald_tests(effects, errors, self.confidence)
            more = [effects, errors, values, tails, *ends.T]
            parts = [np.concatenate(pair) for pair in zip(parts, more, strict=True)]
        return [(self._row_names(names), parts, self._statistic(), self.confidence)]

    def _statistic(self) -> str:
        return "z"

    def _figures(self) -> tuple[str, Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
        raise NotImplementedError

    def _notes(self, given: Sequence[str] | None = None) -> list[str]:
        notes = [f"{len(self.sites_)} sites; only sums of their rows have left them."]
        if self.cov_type != "nonrobust":
            notes.append(f"Standard errors are robust ({self.cov_type}).")
        if self.ridge:
            notes.append(f"Coefficients are shrunk by ridge={self.ridge:g}.")
        names = self._feature_names(given)
        if len(self.dependent_columns_):
            notes.append(
                f"Constant, or in line with other columns: {', '.join(names[j] for j in self.dependent_columns_)}."
            )
        if len(self.separated_columns_):
            which = ", ".join(names[j] for j in self.separated_columns_)
            notes.append(f"Perfect separation by {which}: these numbers mean nothing.")
        return notes

    def _linear(self, X: Any, site: Any) -> Vector:
        """Return the linear predictors of rows (n, r), with the effect of their site, or the mean effect."""
        check_is_fitted(self)
        rows = self._coded_rows(X)
        at = self._offset_column()
        features, shift = (np.delete(rows, at, axis=1), rows[:, [at]]) if at >= 0 else (rows, 0.0)
        found = features @ np.atleast_2d(self.coef_).T + np.atleast_1d(self.intercept_) + shift
        effects = getattr(self, "site_effects_", None)
        if effects is not None:
            table = np.atleast_2d(effects)
            found = found + (table.mean(axis=1) if site is None else table[:, self._site_numbers(site, len(rows))].T)
        elif site is not None:
            raise InputError("site=... goes with site_effect='fixed' or 'random': this model has no effects of sites")
        return np.asarray(found)

    def _predicted(self, fed: Federation, site: Any, link: str, classes: Any = None) -> Federation:
        """Return the federation whose sites see predictions in place of their rows, with the mean effect of sites."""
        check_is_fitted(self)
        if site is not None:
            raise InputError("site=... goes with a table: of a federation, predictions have the mean effect of sites")
        slopes, at = np.atleast_2d(self.coef_), self._offset_column()
        effects = getattr(self, "site_effects_", None)
        coded = fed.apply(treatment_coded, columns=self._names(), **self._coding()) if self.categories_ else fed
        return coded.apply(
            predicted,
            columns=None if self.categories_ else self._names(),
            slopes=slopes if at < 0 else np.insert(slopes, at, 1.0, axis=1),
            intercepts=np.atleast_1d(self.intercept_)
            + (0.0 if effects is None else np.atleast_2d(effects).mean(axis=1)),
            link=link,
            classes=classes,
        )

    def _site_numbers(self, site: Any, n: int) -> NDArray[np.int64]:
        labels = np.broadcast_to(np.asarray(site, dtype=str), (n,))
        known = {name: k for k, name in enumerate(self.sites_)}
        unknown = sorted({str(name) for name in labels} - known.keys())
        if unknown:
            raise InputError(
                f"site={unknown[0]!r} has no effect: this model was fitted at {', '.join(self.sites_[:10])}"
            )
        return np.array([known[str(name)] for name in labels], dtype=np.int64)
