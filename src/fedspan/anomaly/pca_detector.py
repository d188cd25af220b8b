"""FedPCADetector: anomalies are rows that do not fit the subspace, or the covariance, of all sites' normal rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian
from fedspan.anomaly import scores as forms
from fedspan.anomaly.detector import usual_dimension
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.thresholds import few_rows, left_out_subspace, left_out_whitened, leverages
from fedspan.arrays import Array, Vector
from fedspan.checks import dict_of, one_of, real_number, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.linalg import whitening_root
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.estimator import FedPCA
from fedspan.pca.noisy_covariance import covariance_within, local_noisy_gram
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.pca.solvers import SOLVERS
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import NoisySums, noisy_sums
from fedspan.sums.batches import kept_moments, learned_on
from fedspan.sums.columns import Columns
from fedspan.sums.moments import deviations, moments, row_moments
from fedspan.sums.noisy_quantiles import ROUNDS, local_noisy_counts
from fedspan.sums.noisy_quantiles import search as noisy_search
from fedspan.sums.one_round import ALL_WIDTHS, MergedMoments
from fedspan.sums.row_moments import RowMoments, packed
from fedspan.sums.row_transforms import standardize

#: The functions that score many rows, score one, and explain.
Form = tuple[Callable[..., Array], Callable[..., float], Callable[..., Vector]]

DISTANCES = ("residual", "mahalanobis", "combined")
#: More columns than this and no covariance is formed: its eigenvectors would take minutes.
WIDEST = 1000
#: A share of the variance that is rounding alone: that of numbers in single precision is 1e-15.
ROUNDING = 1e-14
#: With fewer rows than as many times the columns the ridge counts in distances of rows left out.
_FEW_FOR_RIDGE = 3
#: The threshold's share of the privacy budget.
_THRESHOLD_SHARE = 0.25
_SUBSPACE: Form = (forms.subspace_score, forms.one_subspace_score, forms.subspace_shares)
_WHITENED: Form = (forms.whitened_score, forms.one_whitened_score, forms.whitened_shares)
_TAKEN_OVER = (
    *("components_", "explained_variance_", "explained_variance_ratio_", "noise_variance_", "mean_", "scale_"),
    *("n_components_", "n_samples_", "solver_", "sites_trusted_", "site_weights_", "resilience_"),
)


@dataclass(eq=False, repr=False)
class FedPCADetector(ExplainedDetector):
    """Detect anomalies by PCA: score rows by how badly they fit the subspace or the covariance of the sites' rows.

    Fit it on rows that are normal, or nearly all so. A row x is standardised to z, and its anomaly score is one of

    - ``"mahalanobis"``: ``z' (C + r I)^-1 z``, where C is the covariance and r the ridge: every direction counts in
      units of its own spread.
    - ``"residual"``: ``||(I - U U')z||^2``, the squared distance from the principal subspace.
    - ``"combined"``: the Mahalanobis distance of the residual, ``sum_{j > k} (v_j'z)^2 / (l_j + r)``, where l_j and v_j
      are variances and axes orthogonal to the subspace. As in ``"residual"`` the k leading directions, in which normal
      rows differ, do not count. As in ``"mahalanobis"`` a small deviation counts where the rows never deviate.

    Rows whose score is above the `quantile` of the training scores are outliers. That threshold is found exactly
    without moving rows (see `fedspan.sums.quantiles`). On new rows of the same distribution the false positive rate is
    1 - quantile. With a resilient solver or an aggregator it is only roughly so (see the notes). The sampling error of
    a quantile is about ``sqrt(quantile (1 - quantile) / n)``.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default=None
        Dimension k of the subspace, as of `FedPCA`; it must be below the rank of the data. None: half of the columns,
        at most 10. For ``"mahalanobis"`` it matters with more than 1,000 columns only.
    solver : str, default="auto"
        Any solver of `FedPCA`. With a resilient one the means, deviations, covariance and threshold are resilient, too.
    distance : {"mahalanobis", "residual", "combined"}, default="mahalanobis"
        The scores above. On real tables `mahalanobis` finds most; the published method has ``"residual"``.
    quantile : float, default=0.95
        Of the training scores.
    ridge : float, default=1e-4
        Of the Mahalanobis distances, as a part of the mean variance of the columns. With 1e-4 no direction has a spread
        below a hundredth of that of a column.
    center, scale : bool, default=True
        Subtract the mean and divide by the deviation of each column.
    aggregator : Aggregator, optional
        Rule that combines the sites' messages, instead of sums, as of `FedPCA`; also for covariance and threshold. With
        a resilient solver the default is the coordinate-wise median of means, deviations and fractions below a
        threshold, and the geometric median of covariances.
    left_out : bool or "auto", default="auto"
        Take the quantile of scores as if each training row had been left out, by formulas that need no second fit (see
        `fedspan.anomaly.thresholds`). A model fits its own rows better than new ones, and where rows are few the
        threshold would be too low. ``"auto"``: where it matters more than about half a point, with fewer than about 22
        d^1.5 rows of d columns (for the 0.95 quantile). Also if variances within and outside the subspace are alike.
    solver_options : dict, optional
        Further parameters of `FedPCA` by name, for its solvers: ``{"max_rounds": 50}``.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy, with solver ``"auto"`` or ``"covariance"`` and a `quantile` below 1. A covariance with
        noise takes three quarters of the budget, the threshold one (see ``docs/privacy.md``). The ridge is then at
        least about the noise of the covariance.
    random_state, verbose : int, optional
        Seed of the run; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    components_, explained_variance_, explained_variance_ratio_, noise_variance_, mean_, scale_, n_components_
        As of `FedPCA`.
    n_samples_, solver_, sites_trusted_, site_weights_, resilience_
        As of `FedPCA`.
    whitening_ : array (d, d) or None
        The symmetric root W of the matrix of a Mahalanobis distance, which is ``||W z||^2``. None for ``"residual"``,
        and with more than 1,000 columns, or more than fit a message. There every direction outside the subspace has the
        variance ``noise_variance_`` (so that ``"combined"`` orders rows as ``"residual"`` does).
    left_out_ : bool
        Whether the threshold is one of rows left out.
    ridge_ : float
        The ridge in the units of the standardised rows' variances.
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site: the messages of the solver, then for the threshold 257 counts a round in 8 rounds, and for `drift`
    the counts of its rows between 21 edges of each column and direction (not with `privacy`). For the
    Mahalanobis distances the d (d + 1) / 2 numbers of a Gram matrix. Those of solver ``"covariance"`` serve for both,
    with other solvers they are one more message.

    Resilience is for sites that are alike. With a resilient solver or an aggregator the threshold is that of most
    sites, and a minority can't push it beyond those of honest sites. Where sites differ much, that is not the threshold
    of all rows. The false positive rate can then be several times 1 - quantile without any attack. Sites of fewer than
    ``2 / 3 / (1 - quantile)`` rows, 14 for 0.95, are too small to vote (see `fedspan.sums.quantiles`). Mahalanobis
    distances depend on small variances, which attacks spoil first: the residual is the more robust score. With sums
    alone one malicious site can spoil model and threshold.

    References
    ----------
    T.-A. Nguyen, L. T. Le, T. D. Nguyen, W. Bao, S. Seneviratne, C. S. Hong and N. H. Tran, "Federated PCA on Grassmann
    manifold for IoT anomaly detection", IEEE/ACM Transactions on Networking (2024): the residual.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) * [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=(500, 3))
    >>> detector = FedPCADetector(1).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]])
    array([ 1, -1])
    >>> detector.explain([1.0, 2.0, -3.0]).round(1)
    array([0.2, 0.2, 0.7])
    """

    mean_: Vector = field(init=False)
    scale_: Vector | None = field(init=False)
    components_: Vector = field(init=False)
    explained_variance_: Vector = field(init=False)
    noise_variance_: float = field(init=False)
    n_components_: int = field(init=False)
    n_samples_: int = field(init=False)

    n_components: int | float | str | None = None
    _: KW_ONLY
    solver: str = "auto"
    distance: str = "mahalanobis"
    quantile: float = 0.95
    ridge: float = 1e-4
    center: bool = True
    scale: bool = True
    aggregator: Aggregator | None = None
    left_out: bool | str = "auto"
    solver_options: Mapping[str, Any] | None = None
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn subspace, covariance and threshold from a table (with ``sites``) or a federation."""
        self._check_parameters()
        one = self._pca(WIDEST).one_round(X, at_least=0 if self.distance == "residual" else WIDEST)
        with self._fitting(X, y, sites, agree=one, ensure_min_samples=2) as fed, self._account(fed) as noisy:
            search = self._learn_model(fed, noisy, None if one is None else one.found)
            self._choose_left_out()
            self._learn_threshold(fed, self._resilient(CoordinateMedian()), search)
            fed.log(threshold=-self.offset_)
        return self

    def _account(self, fed: Federation) -> AbstractContextManager[NoisySums | None]:
        """Open the account for sums with noise, if `privacy` is wanted."""
        if self.privacy is None:
            return nullcontext()
        plan = {local_noisy_gram: (1.0 - _THRESHOLD_SHARE, 1), local_noisy_counts: (_THRESHOLD_SHARE, ROUNDS)}
        return noisy_sums(self.privacy, fed, plan, "all sums, and so model and threshold")

    def _learn_model(
        self,
        fed: Federation,
        noisy: NoisySums | None = None,
        merged: MergedMoments | None = None,
        *,
        of_all: bool = False,
    ) -> Callable[..., Vector] | None:
        """Learn subspace and covariance, from moments that came with the columns, if they did.

        `of_all` states that these are also of rows that the sites no longer have.

        With noise, return how the threshold is found.
        """
        d = self.n_features_in_
        fits = d <= WIDEST and 8 * d * (d + 8) <= fed.policy.max_bytes  # the root, mean and scale go to the sites
        wants_covariance = self.distance != "residual" and fits
        pca = self._pca(d)
        if (wants_covariance or of_all) and pca.solver == "auto":
            pca.solver = "covariance"
        self._share_columns(pca)
        one_message = wants_covariance and pca.solver in ("covariance", "resilient_covariance")
        covariance = None
        if noisy is not None and self.privacy is not None:
            covariance = covariance_within(noisy, fed, self.privacy.bounds(d))
            axes = pca._keep_noisy(covariance, all_axes=one_message).axes
        else:
            axes = pca._learn(fed, merged, all_axes=one_message, of_all=of_all).axes
        for name in _TAKEN_OVER:
            setattr(self, name, getattr(pca, name))
        self.__dict__.pop("moments_", None)
        if hasattr(pca, "moments_"):
            self.moments_ = pca.moments_
        self._refuse_full_rank(axes)
        if wants_covariance and not one_message:
            standard = fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True)
            axes, _ = covariance_pca(standard, aggregator=self._resilient(GeometricMedian()))
        free = self._free(axes.n)
        noise = 0.0 if covariance is None else covariance.spectral_noise(self.scale_)
        self.ridge_ = max(self.ridge * axes.total / free / d, noise)
        self.whitening_ = None
        if wants_covariance:
            C = (axes.components.T * (axes.scatter / free)) @ axes.components
            U = self.components_.T if self.distance == "combined" else None
            self.whitening_ = whitening_root(C, self.ridge_, without=U)
        if noisy is None:
            return None
        most = np.array([self._largest_score(noise)])
        return partial(noisy_search, noisy, low=np.zeros(1), high=most, level=float(self.quantile))

    def _largest_score(self, noise: float = 0.0) -> float:
        """Return the largest score that counts in a search with noise: that of a share of 1 - quantile (Markov)."""
        d = self.n_features_in_
        mean = (self.noise_variance_ + noise) * (d - self.n_components_) if self.distance == "residual" else float(d)
        return 2.0 * mean / (1.0 - self.quantile)

    def _refuse_full_rank(self, axes: PrincipalAxes) -> None:
        """Refuse a subspace that leaves nothing outside: the residual would be rounding alone."""
        d, k = self.n_features_in_, self.n_components_
        variance = axes.total / self._free(axes.n)
        if not axes.total > 0:
            raise InputError(
                f"the variance of all rows is {variance}, and must be above 0: the rows are all the same, or a site "
                "sends false values"
            )
        # With noise the variance outside is unknown, but there is some.
        outside = self.noise_variance_ if self.privacy is None else variance
        if self.distance != "mahalanobis" and not outside * (min(axes.n, d) - k) > ROUNDING * variance:
            raise InputError(
                f"n_components={k} must be below the rank of the data (n_features={d}, n_samples={axes.n}): "
                f"distance={self.distance!r} measures what lies outside the subspace, and nothing does"
            )

    def _pca(self, d: int) -> FedPCA:
        """Return the estimator of the subspace of `d` columns."""
        options: dict[str, Any] = dict(self.solver_options or {})
        for name in ("solver", "center", "scale", "aggregator", "privacy"):
            options[name] = getattr(self, name)
        return FedPCA(usual_dimension(d) if self.n_components is None else self.n_components, **options)

    def _share_columns(self, pca: FedPCA) -> None:
        """Give `pca`, which learns within this estimator's run, the columns and sites."""
        for name in ("n_features_in_", "feature_names_in_", "names_before_", "sites_"):
            if hasattr(self, name):
                setattr(pca, name, getattr(self, name))

    def _resilient(self, rule: Aggregator) -> Aggregator | None:
        """Return the user's aggregator, else `rule` where the solver is resilient, else ``None``."""
        return self.aggregator or (rule if SOLVERS[self.solver].resilient else None)

    def _single_replies(self) -> str | None:
        return super()._single_replies() if SOLVERS[self.solver].sums_only else f"(solver={self.solver!r})"

    def _check_parameters(self) -> None:
        self._check_quantile()
        one_of("distance", self.distance, DISTANCES)
        real_number("ridge", self.ridge, above=0)
        for name in ("center", "scale"):
            true_or_false(name, getattr(self, name))
        if not isinstance(self.left_out, bool | np.bool_) and self.left_out != "auto":
            raise InputError(f"left_out={self.left_out!r} must be True, False or 'auto'")
        allowed = sorted(set(FedPCA().get_params()) - set(self.get_params(deep=False)) - {"whiten"})
        dict_of("solver_options", self.solver_options, "parameters of FedPCA", allowed)
        self._pca(2)._check_parameters()
        if self.privacy is not None:
            real_number("quantile", self.quantile, above=0, below=1, why=" with privacy=...")

    def explain(self, X: Any) -> Vector:
        """Return each feature's share of the anomaly score: for one row (d,), or for every row (n, d).

        The score is the squared length of ``W z`` with a symmetric W: ``I - U U'`` for the residual, a root of the
        inverse covariance for Mahalanobis distances. A feature's share is its part of that length. Shares are not
        negative and sum to 1; a row with the score 0 has shares 0.
        """
        return super().explain(X)

    def _check_exact_sums(self) -> None:
        super()._check_exact_sums()
        if self.solver not in ("auto", "covariance") and not SOLVERS[self.solver].resilient:
            raise InputError(
                f"partial_fit adds moments up, and takes no solver={self.solver!r}: use 'covariance' or a resilient one"
            )

    def _of_new_shares(self) -> Aggregator | None:
        return self._resilient(CoordinateMedian()) and CoordinateMedian()

    def _keep_sums(self, fed: Federation) -> None:
        if not hasattr(self, "moments_"):  # secure sums have other rounds
            self.moments_ = kept_moments(self._new_moments(fed)[0])

    def _new_moments(self, fed: Federation) -> tuple[RowMoments, tuple[str, ...]]:
        """Return the moments of new rows: exact, or where sites may be malicious those that most of them agree on."""
        rule = self._resilient(CoordinateMedian())
        if rule is None:
            return row_moments(fed, self._names(), widest=ALL_WIDTHS)
        found = moments(fed, self._names(), CoordinateMedian())
        scale = deviations(found)
        standard = fed.apply(standardize, mean=found.mean, scale=scale, double=True)
        axes, _ = covariance_pca(standard, aggregator=self._resilient(GeometricMedian()))
        scatter = (axes.components.T * axes.scatter) @ axes.components * np.outer(scale, scale)
        return RowMoments(found.n, float(found.n), found.mean, np.zeros_like(scale), packed(scatter)), fed.sites

    def _learn_on(self, fed: Federation, factor: float) -> None:
        rows, sites = self._new_moments(fed)
        self._learn_merged(rows, sites, factor, fed)

    def _learn_merged(self, rows: RowMoments, sites: tuple[str, ...], factor: float, fed: Federation) -> None:
        """Learn from the moments of new rows; `factor` multiplies the weight of earlier rows."""
        d = self.n_features_in_
        if not hasattr(self, "moments_"):
            raise InputError("this model keeps no moments to learn on from: begin with partial_fit")
        merged = learned_on(self.moments_, d, rows, factor)
        known = MergedMoments(merged, sites, Columns(d, self._names()), np.zeros(d, np.int64))
        rules, self.solver, self.aggregator = (self.solver, self.aggregator), "covariance", None
        try:  # the moments are combined already
            self._learn_model(fed, None, known, of_all=True)
        finally:
            self.solver, self.aggregator = rules
        self.n_samples_ = round(self.n_samples_)
        self._choose_left_out()

    def _learn_kept(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        self._learn_merged(rows, fed.sites, factor, fed)

    def _choose_left_out(self) -> None:
        n, variances = self.n_samples_, self.explained_variance_
        few = few_rows(n, self.n_features_in_, float(self.quantile), variances, self.noise_variance_)
        self.left_out_ = n > 2 and bool(few if self.left_out == "auto" else self.left_out)

    def _shares(self, X: Array) -> Vector:
        (_, _, shares), parameters = self._form()
        return shares(X, **parameters)

    def _one_score(self, row: Vector) -> float:
        (_, of_one_row, _), parameters = self._form()
        return of_one_row(row, **parameters)

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        (transform, _, _), parameters = self._form()
        return transform, parameters

    def _free(self, n: float) -> float:
        """Return the degrees of freedom of the covariance of n rows."""
        return max(1, n - 1 if self.center else n)

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform for the threshold: with ``left_out_`` it scores each row as if it had been left out."""
        (transform, _, _), parameters = self._form()
        if not self.left_out_:
            return transform, parameters
        n = self.n_samples_
        parameters |= {"free": self._free(n), "shift": n / (n - 1) if self.center else 1.0}
        leverage = leverages(self.explained_variance_, self.noise_variance_, parameters["free"])
        if self.whitening_ is None:
            return left_out_subspace, {**parameters, "leverage": leverage}
        within: dict[str, Any] = {"components": None, "inside": None, "leverage": None}
        if self.distance == "combined":
            inside = 1.0 / (self.explained_variance_ + self.ridge_)
            within = {"components": self.components_, "inside": inside, "leverage": leverage}
        elif self.scale_ is not None and n < _FEW_FOR_RIDGE * self.n_features_in_:
            parameters["ridge"] = self.ridge_
        return left_out_whitened, {**parameters, **within}

    def _form(self) -> tuple[Form, dict[str, Any]]:
        """Return the functions that score many rows, score one and explain, and the parameters of all three."""
        standard = {"mean": self.mean_, "scale": self.scale_}
        if self.whitening_ is not None:
            return _WHITENED, {**standard, "root": self.whitening_}
        inside, outside = None, 1.0
        if self.distance != "residual":
            outside = 1.0 / (self.noise_variance_ + self.ridge_)
        if self.distance == "mahalanobis":
            inside = 1.0 / (self.explained_variance_ + self.ridge_)
        return _SUBSPACE, {**standard, "components": self.components_, "inside": inside, "outside": outside}

    def _anomaly(self, X: Any) -> Vector:
        # Values that are not finite have scores that are not: scores are checked first, since they are fewer.
        scores = self._scores(self._validated(X, ensure_all_finite=False))
        if not np.isfinite(scores).all():
            self._validated(X)
        return scores
