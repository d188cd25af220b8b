"""FedMixedRegressor: regressions of sites that fall into a few unknown clusters."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
from scipy.special import expit
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from fedspan.aggregation import Aggregator
from fedspan.arrays import Array, Floats
from fedspan.base import FedEstimator
from fedspan.checks import as_table, first_of, held
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.mixed_regression.logistic_fedx import logistic_losses, other_classes
from fedspan.mixed_regression.parts.cluster_assignment import (
    Assignment,
    ClusterAssignment,
    assigned,
    gaussian_likelihood,
)
from fedspan.mixed_regression.parts.cluster_repair import Fitting
from fedspan.mixed_regression.parts.feature_preparation import FeatureMap, feature_scaling, target_moments, whitened
from fedspan.mixed_regression.parts.moment_products import count_clusters
from fedspan.mixed_regression.parts.parameter_checks import check_parameters
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.sums.moments import moments
from fedspan.sums.plausible_totals import ABSURD

_MEMORY = 5  # of Anderson's extrapolation, by default
_CLASSES = "loss='logistic' needs the classes 0 and 1 in y, which has other values: code them as 0 and 1"
_LARGEST = 1e100  # of rows to assign: squares must not overflow
_SMALLEST = 1e-120  # of targets: squares must not vanish
_LOGITS = 3.0  # length of random models of logits: short ones would all be worse than the shortest


@dataclass(eq=False, repr=False)
class FedMixedRegressor(RegressorMixin, FedEstimator):
    """Linear models of a few unknown clusters of sites, even of sites with only a handful of rows.

    Two phases: coarse models from any starting point, then rounds in which every site finds its cluster and helps to
    refine that model. L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression",
    NeurIPS 2022.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        "auto" starts with the number of directions in which sites differ by more than noise. It splits clusters while
        the Bayesian information criterion improves, up to `max_clusters`. It trusts all sites.
    start : {"moment_descent", "spectral", "random"}, default="moment_descent"
        "moment_descent": models of a few large anchor sites, clustered. "spectral": all sites, clustered in the
        directions in which they differ; far fewer bytes. "random": the best of `n_starts` random starts.
    update : {"fedavg", "fedprox", "exact"}, default="fedavg"
        The sites' refinement of their cluster's model: `local_steps` gradient steps, a proximal step, or least squares
        from sums of Gram matrices, which takes few rounds of many bytes.
    local_steps : int, default=5
        For "fedavg" only. Their number costs a site nothing: see `fedspan.linalg.descent_operator`.
    weights : {"cluster", "total"}, default="cluster"
        A site's weight: its rows over those of its cluster, or over all rows, as in the paper. The latter is slow for
        small clusters and can starve them.
    assignment : {"hard", "soft"}, default="hard"
        To the best cluster, or to all by their probability. Soft helps where sites have two or three rows.
    max_rounds, tol : int, float, default=400, 1e-6
        Most rounds, and the relative change of the models at which to stop (0: never). Where sites come and go, the
        result is the mean of the last rounds once the models only vary about it.
    features : {"linear", "polynomial", "interactions"} or transformer, default="linear"
        What the models are linear in: the columns, their products up to `degree`, or those without powers. A fitted
        scikit-learn transformer works on the embedded engine only, and can't be saved (wrap it in
        ``sklearn.frozen.FrozenEstimator`` where the regressor is cloned).
    degree : int, default=2
        For "polynomial" and "interactions", at most 8.
    fit_intercept : bool, default=True
    scaling : {"whiten", "standardize", "none"}, default="whiten"
        Preparation of features, by sums over all sites: unit covariance (d (d + 1) / 2 numbers up per site, once), unit
        deviations, or none. The models are in the features' own units in any case.
    loss : {"squared", "logistic"}, default="squared"
        "logistic": y holds 0 and 1, `predict` gives the probability of 1, and `score` the accuracy. Only with
        update="fedavg". There are no anchors: the start "moment_descent" means the spectral one; "random" chooses by
        the loss on every fourth row, held back.
    step_size : float, optional
        Of the local steps, in units of the scaled features; not for "exact". Default: that of `fedspan.protocols.fedx`.
        With several steps, a site's own step size is at most one over its largest eigenvalue.
    acceleration : int or "auto", default="auto"
        Memory of Anderson's extrapolation at the coordinator: fewer rounds for the same messages. "auto": 5, and 0 for
        "exact".
    n_starts : int, default=1
        For start="random".
    max_clusters : int, default=10
        For n_clusters="auto".
    p_min : float, optional
        The smallest cluster's share of the sites, which gives the number of anchors. Default: 1 / n_clusters.
    perturbation : float, default=0
        Length of the noise on the anchors' models that other sites receive, in units of the targets' deviation.
    aggregator : Aggregator, optional
        The rule that combines replies where sites may be malicious, in both phases. Try
        ``fedspan.aggregation.SpectralFilter()``: sites that push together move medians of distances far. It needs
        single replies. Not with n_clusters="auto". A rule with a number of malicious sites is set up for all sites. A
        cluster that tolerates fewer gets a rule for fewer, with a warning.
    random_state, verbose : int, optional
        Seed of the run; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    coef_, intercept_ : array (k, d), array (k,)
        Of the (mapped) features, in their own units.
    cluster_weights_, cluster_rows_ : array (k,)
        The clusters' shares of the sites, and their numbers of rows.
    noise_ : array (k,)
        Standard deviation of the noise in each cluster (NaN for the logistic loss).
    labels_, proba_ : array (sites,), array (sites, k)
        The most probable cluster of each site, in the order of ``sites_``; -1 (and a warning) for a site without a
        valid reply in the end.
    n_clusters_, n_iter_ : int
        Clusters, and rounds of refinement.
    converged_ : bool
    site_weights_ : array (sites,)
        The share that an aggregator gave to each site in the last round.
    sites_trusted_ : tuple of str
        The sites with at least half an equal share.
    mean_, whitening_ : array (d,), array (d, r) or (d,)
        The preparation of features: the mean that is subtracted, and the matrix, or its diagonal, that follows.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Memory at the coordinator: k d, with scaling="whiten" d^2; of the start A d (k + 2) for A anchors, and where single
    replies are needed, M times a site's reply.

    Examples
    --------
    >>> from fedspan.datasets import make_mixed_regression
    >>> made = make_mixed_regression(sizes=[12] * 30, n_clusters=2, n_features=4, seed=0)
    >>> model = FedMixedRegressor(2, random_state=0).fit(made.X, made.y, sites=made.sites)
    >>> bool((model.labels_ == made.labels).all() or (model.labels_ == 1 - made.labels).all())
    True
    >>> bool(model.assign(made.X[:5], made.y[:5]).label == model.labels_[0])
    True
    """

    n_clusters: int | str = "auto"
    _: KW_ONLY
    start: str = "moment_descent"
    update: str = "fedavg"
    local_steps: int = 5
    weights: str = "cluster"
    assignment: str = "hard"
    max_rounds: int = 400
    tol: float = 1e-6
    features: Any = "linear"
    degree: int = 2
    fit_intercept: bool = True
    scaling: str = "whiten"
    loss: str = "squared"
    step_size: float | None = None
    acceleration: int | str = "auto"
    n_starts: int = 1
    max_clusters: int = 10
    p_min: float | None = None
    perturbation: float = 0.0
    aggregator: Aggregator | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the clusters' models from a table with targets (and ``sites``), or from a federation that has them."""
        check_parameters(self)
        if not isinstance(X, Federation):
            y = self._checked_target(y)
            check_consistent_length(as_table(X), y)
        with self._fitting(X, y, sites) as fed:
            mapping = self._map()
            if not mapping.is_identity:
                moments(fed, self._names(), self.aggregator)  # refuses NaN and infinity by the name of the column
            with mapping.applied(fed) as mapped:
                self._learn(mapped, self._names() if mapping.is_identity else None)
        return self

    def _single_replies(self) -> str | None:
        return ""

    def predict(self, X: Any, *, site: Any = None, cluster: Any = None) -> Floats:
        """Return predictions for rows.

        Parameters
        ----------
        X : array (n, d)
        site : name, or array of names (n,), optional
            The site of the rows: its cluster's model predicts, or with soft assignment the mean over its probabilities.
            Without it, the mean over all clusters by their shares of the sites.
        cluster : int or array (k,), optional
            Instead of a site: a cluster, or the probability of each, as `assign` finds them.
        """
        check_is_fitted(self)
        values = self._values(self._validated(X))
        if cluster is not None and site is not None:
            raise InputError("predict takes a site or a cluster, not both")
        names = np.asarray(site)
        if site is None or names.ndim == 0:
            weights = self.cluster_weights_ if cluster is None else self._mixture(cluster)
            return cast(Floats, values @ (weights if site is None else self._of_site(str(names))))
        if names.shape != (len(values),):
            raise InputError(
                f"site has the shape {names.shape}, and must be a name or one for each of {len(values)} rows"
            )
        parts = {str(name): self._of_site(str(name)) for name in np.unique(names)}
        return np.asarray(np.einsum("nk,nk->n", values, np.stack([parts[str(name)] for name in names])))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R2 of `predict`, or for the logistic loss its accuracy."""
        if self.loss == "logistic":
            return float(accuracy_score(y, self.predict(X) > 0.5, sample_weight=sample_weight))
        return float(super().score(X, y, sample_weight))

    def assign(self, X_new: Any, y_new: Any) -> Assignment:
        """Return the most probable cluster of a client with the rows `X_new` (m, d) and targets `y_new` (m,).

        Its confidence allows for the noise of the targets and of the models.
        """
        check_is_fitted(self)
        try:
            X = self._validated(X_new)
            y = self._checked_target(y_new)
            check_consistent_length(X, y)
        except ValueError as error:
            raise InputError(f"X_new, y_new: {error}") from None
        if not max(np.abs(X).max(), np.abs(y).max()) < _LARGEST:
            raise InputError(f"X_new and y_new must hold numbers below {_LARGEST:g}")
        features = self._map().transform(X)
        if self.loss == "logistic":
            models = np.column_stack([self.intercept_, self.coef_])
            losses = logistic_losses(np.hstack([np.ones((len(X), 1)), features]), y, models)
            return assigned(self.cluster_weights_, -losses)
        phi = whitened(features, self.mean_, np.atleast_2d(self.whitening_), self.fit_intercept)
        residuals = y[:, None] - self._values(X)
        likelihood = gaussian_likelihood(phi, residuals, self.noise_, self.cluster_rows_)
        return assigned(self.cluster_weights_, likelihood)

    # Inside.

    def _learn(self, fed: Federation, names: tuple[str, ...] | None) -> None:
        if self.aggregator is not None:  # huge replies of a site are its own failure, and must not stop the run
            fed = fed.bounded(ABSURD)
        if self.loss == "logistic" and other_classes(fed, robust=self.aggregator is not None):
            raise InputError(_CLASSES)
        centre, deviation = target_moments(fed, aggregator=self.aggregator)
        if 0.0 < max(abs(centre), deviation) < _SMALLEST:
            raise InputError(f"the targets are smaller than {_SMALLEST:g}, and their squares vanish: multiply y first")
        intercept = bool(self.fit_intercept)
        found = feature_scaling(fed, scaling=self.scaling, center=intercept, names=names, aggregator=self.aggregator)
        self.mean_, self.whitening_ = found.mean, found.matrix
        prepared = fed
        if self.scaling != "none" or intercept:
            matrix = np.atleast_2d(self.whitening_)
            prepared = fed.apply(whitened, mean=self.mean_, matrix=matrix, intercept=intercept)
        theta0 = np.zeros(self.whitening_.shape[-1] + intercept)
        if intercept:
            theta0[0] = centre
        automatic = self.n_clusters == "auto"
        most = min(self.max_clusters, len(fed.sites))
        k = count_clusters(prepared, start=theta0, most=most) if automatic else int(self.n_clusters)
        scale = deviation if deviation > 0.0 else 1.0
        fitting = Fitting(prepared, self._options(scale, theta0))
        if self.loss == "logistic" and self.start == "random":
            models = fitting.start(k, np.zeros_like(theta0), _LOGITS).models
        else:
            models = fitting.start(k, theta0, scale).models
            models = models if self.loss == "squared" else self._in_logits(models, centre)
        self._keep(*fitting.settled(fitting.refined(models), grow_to=most if automatic else 0))

    def _options(self, scale: float, origin: Array) -> dict[str, Any]:
        options: dict[str, Any] = self.get_params(deep=False)
        if self.acceleration == "auto":
            options["acceleration"] = 0 if self.update == "exact" else _MEMORY
        return options | {"perturbation": self.perturbation * scale, "origin": origin}

    def _in_logits(self, models: Array, centre: float) -> Array:
        """Return models of the probability of class 1, which are about right near its mean, as models of its logit."""
        p = float(np.clip(centre, 0.01, 0.99))
        logits = models / (p * (1.0 - p))
        if self.fit_intercept:
            logits[:, 0] = (models[:, 0] - centre) / (p * (1.0 - p)) + np.log(p / (1.0 - p))
        return logits

    def _keep(self, done: Refinement, who: ClusterAssignment) -> None:
        """Warn of faults, and set the attributes."""
        if not done.converged and self.tol > 0.0:
            warnings.warn(
                f"max_rounds={self.max_rounds} were over before the models moved by less than tol={self.tol:g} of the "
                "longest one: raise max_rounds, or tol if that is near enough",
                ConvergenceWarning,
                stacklevel=4,
            )
        silent = [name for name, label in zip(who.sites, who.labels, strict=True) if label < 0]
        if silent:
            warnings.warn(
                f"{first_of(map(repr, silent), 5)} gave no valid reply in the end, and have no cluster (label -1): "
                "find it with assign",
                stacklevel=4,
            )
        models = done.models
        slopes = models[:, 1:] if self.fit_intercept else models
        diagonal = self.whitening_.ndim == 1
        self.coef_ = slopes * self.whitening_ if diagonal else slopes @ self.whitening_.T
        self.intercept_ = models[:, 0] - self.coef_ @ self.mean_ if self.fit_intercept else np.zeros(len(models))
        self.n_clusters_ = len(models)
        self.cluster_weights_, self.noise_, self.cluster_rows_ = who.shares, who.noise, who.rows
        self.labels_, self.proba_ = who.labels, who.proba
        self.n_iter_, self.converged_ = done.rounds, done.converged
        equal = 1.0 / len(self.sites_)
        weights = done.trust or dict.fromkeys(self.sites_, equal)
        self.site_weights_ = np.array([weights.get(name, 0.0) for name in self.sites_])
        self.sites_trusted_ = tuple(np.array(self.sites_)[self.site_weights_ >= 0.5 * equal].tolist())

    def _map(self) -> FeatureMap:
        return FeatureMap(self.features, self.degree, self.n_features_in_)

    def _values(self, X: Array) -> Array:
        """Return the prediction (n, k) of every cluster's model."""
        linear = self._map().transform(X) @ self.coef_.T + self.intercept_
        return cast(Array, expit(linear) if self.loss == "logistic" else linear)

    def _of_site(self, name: str) -> Floats:
        """Return the weight (k,) of each cluster at a site."""
        if name not in self.sites_:
            raise InputError(f"site={name!r} was not in the fit: find its cluster with assign(X_new, y_new)")
        i = self.sites_.index(name)
        if self.labels_[i] < 0:
            raise InputError(f"site={name!r} gave no valid reply in the end: find its cluster with assign")
        if self.assignment == "soft":
            return cast(Floats, self.proba_[i])
        return np.asarray(np.eye(self.n_clusters_)[self.labels_[i]])

    def _mixture(self, cluster: Any) -> Floats:
        given = np.asarray(cluster)
        if given.ndim == 0 and given.dtype.kind in "iu" and 0 <= int(given) < self.n_clusters_:
            return np.asarray(np.eye(self.n_clusters_)[int(given)])
        if given.shape == (self.n_clusters_,) and given.dtype.kind == "f" and abs(given.sum() - 1.0) < 1e-6:
            return given
        raise InputError(
            f"cluster={cluster!r} must be a number from 0 to {self.n_clusters_ - 1}, or a probability of each cluster"
        )

    def _checked_target(self, y: Any) -> Floats:
        if y is None:
            raise InputError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        checked = check_array(held("y", y), ensure_2d=False, input_name="y", dtype="numeric", ensure_min_samples=0)
        values = np.asarray(column_or_1d(checked, warn=True), dtype=np.float64)
        if self.loss == "logistic" and not np.isin(values, (0.0, 1.0)).all():
            raise InputError(_CLASSES)
        return values
