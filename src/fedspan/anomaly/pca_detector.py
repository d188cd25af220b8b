"""FedPCADetector: rows that do not fit the subspace, or the covariance, of all sites' normal rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fedspan.aggregation import Aggregator, CoordinateMedian, GeometricMedian
from fedspan.anomaly.detector import usual_dimension
from fedspan.anomaly.parts.pca_scoring import PCAScoring
from fedspan.anomaly.thresholds import few_rows
from fedspan.checks import one_of, real_number, true_or_false
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.linalg import whitening_root
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.estimator import FedPCA
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.pca.solvers import SOLVERS
from fedspan.sums.row_transforms import standardize

SCORES = ("residual", "mahalanobis", "combined")
#: More columns than this and no covariance is formed: its eigenvectors would take minutes.
WIDEST = 1000
#: A share of the variance that is rounding and nothing else: that of numbers in single precision is 1e-15.
ROUNDING = 1e-14

_TAKEN_OVER = (
    *("components_", "explained_variance_", "explained_variance_ratio_", "noise_variance_", "mean_", "scale_"),
    *("n_components_", "n_samples_", "solver_", "sites_trusted_", "site_weights_"),
)


class FedPCADetector(PCAScoring):
    """Detect anomalies by PCA: rows are scored by how badly they fit what the sites' rows have in common.

    Fit it on rows that are normal, or nearly all so. A row x is standardised to z, and its anomaly score is one of

    - ``"residual"``: ``||(I - U U')z||^2``, the squared distance from the principal subspace.
    - ``"mahalanobis"``: ``z' (C + r I)^-1 z``, where C is the covariance and r the ridge: every direction counts in
      units of its own spread.
    - ``"combined"``: the Mahalanobis distance of the residual, ``sum_{j > k} (v_j'z)^2 / (l_j + r)``, where l_j and v_j
      are variances and axes of what is orthogonal to the subspace: as in ``"residual"`` the k leading directions, in
      which normal rows differ anyway, do not count; as in ``"mahalanobis"`` a small deviation counts where
      the rows never deviate.

    Rows whose score is above the `quantile` of the training scores are outliers. That threshold is found exactly
    without moving rows (see `fedspan.sums.quantiles`): on new rows of the same distribution the false positive
    rate is 1 - quantile (with a resilient solver or an aggregator only roughly so: see the notes), up to the sampling
    error of a quantile, about ``sqrt(quantile (1 - quantile) / n)``. It promises nothing where the distribution shifts.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default=None
        Dimension k of the subspace, as of `FedPCA`; it must be below the rank of the data. None: half of the columns,
        at most 10. For ``"mahalanobis"`` it matters with more than 1,000 columns only.
    solver : str, default="auto"
        How the subspace is found: any solver of `FedPCA`. With a resilient one the means, deviations, the covariance
        and the threshold are resilient, too.
    score : {"residual", "mahalanobis", "combined"}, default="residual"
    quantile : float, default=0.95
        Of the training scores.
    ridge : float, default=1e-4
        Of the Mahalanobis distances, as a part of the mean variance of the columns: 1e-4 says that no direction has a
        spread below a hundredth of that of a column.
    center, scale : bool, default=True
        Subtract the mean and divide by the deviation of each column.
    aggregator : Aggregator, optional
        How to combine what sites send, instead of sums, as of `FedPCA`; also for the covariance and the threshold.
        With a resilient solver the default is the coordinate-wise median of means, deviations and fractions below a
        threshold, and the geometric median of covariances.
    left_out : bool or "auto", default="auto"
        Score each row of the training as if it had been left out, by formulas that need no second fit (see
        `fedspan.anomaly.thresholds`), before the quantile is taken. A model fits its own rows better than new
        ones, and where rows are few the threshold would be too low. ``"auto"``: where it matters more than about half
        a point: with fewer than about 22 d^1.5 rows of d columns (for the 0.95 quantile), or where the subspace is
        hardly determined because variances within and outside it are alike.
    solver_options : dict, optional
        Further parameters of `FedPCA` by name, for its solvers: ``{"max_rounds": 50}``.
    random_state : int, optional
        Seed of the run.
    verbose : int, default=0
        1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    components_, explained_variance_, explained_variance_ratio_, noise_variance_, mean_, scale_, n_components_
        As of `FedPCA`.
    n_samples_, solver_, sites_trusted_, site_weights_
        As of `FedPCA`.
    whitening_ : array (d, d) or None
        The symmetric root W of the matrix of a Mahalanobis distance, which is ``||W z||^2``. None for ``"residual"``,
        and with more than 1,000 columns, or more than fit a message: there every direction outside the subspace is
        taken to have the variance ``noise_variance_`` (so that ``"combined"`` orders rows as ``"residual"`` does).
    left_out_ : bool
        Whether the threshold is that of rows left out.
    ridge_ : float
        The ridge in the units of the standardised rows' variances.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site: what the solver says, then for the threshold 257 counts a round in 8 rounds. For the Mahalanobis
    distances the d (d + 1) / 2 numbers of a Gram matrix: those of solver ``"covariance"`` serve for both, with other
    solvers they are one more message.

    Resilience is for sites that are alike. With a resilient solver or an aggregator the threshold is that of most
    sites, and a minority cannot push it beyond those of honest sites. Where these differ much, because every one has
    its own kind of traffic, that is not the threshold of all rows: then the false positive rate can be several times
    1 - quantile without any lie. Sites of fewer than ``2 / 3 / (1 - quantile)`` rows, 14 for 0.95, are too small for
    their vote (see `fedspan.sums.quantiles`). Mahalanobis distances lean on small variances, which lies spoil
    first: where sites may lie the residual is the sturdier score. With sums alone every site is believed, also in the
    counts of the threshold.

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

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        solver: str = "auto",
        score: str = "residual",
        quantile: float = 0.95,
        ridge: float = 1e-4,
        center: bool = True,
        scale: bool = True,
        aggregator: Aggregator | None = None,
        left_out: bool | str = "auto",
        solver_options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.score = score
        self.quantile = quantile
        self.ridge = ridge
        self.center = center
        self.scale = scale
        self.aggregator = aggregator
        self.left_out = left_out
        self.solver_options = solver_options
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn subspace, covariance and threshold from a table (with ``sites``) or a federation."""
        self._check_parameters()
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            self._learn_model(fed)
            self.left_out_ = self._leaves_out()
            self._learn_threshold(fed, self._resilient(CoordinateMedian()))
            fed.log(threshold=-self.offset_)
        return self

    def _leaves_out(self) -> bool:
        n, d = self.n_samples_, self.n_features_in_
        if n <= 2 or self.left_out != "auto":
            return n > 2 and bool(self.left_out)
        return few_rows(n, d, float(self.quantile), self.explained_variance_, self.noise_variance_)

    def _learn_model(self, fed: Federation) -> None:
        d = self.n_features_in_
        fits = d <= WIDEST and 8 * d * (d + 8) <= fed.policy.max_bytes  # the root, mean and scale go to the sites
        wants_covariance = self.score != "residual" and fits
        pca = self._pca(d)
        if wants_covariance and pca.solver == "auto":
            pca.solver = "covariance"
        self._share_columns(pca)
        one_message = wants_covariance and pca.solver in ("covariance", "resilient_covariance")
        axes = pca._learn(fed, all_axes=one_message).axes
        for name in _TAKEN_OVER:
            setattr(self, name, getattr(pca, name))
        self._refuse_full_rank(axes)
        if wants_covariance and not one_message:
            standard = fed.apply(standardize, mean=self.mean_, scale=self.scale_, double=True)
            axes, _ = covariance_pca(standard, aggregator=self._resilient(GeometricMedian()))
        free = self._free(axes.n)
        self.ridge_ = self.ridge * axes.total / free / d
        self.whitening_ = None
        if wants_covariance:
            C = (axes.components.T * (axes.scatter / free)) @ axes.components
            U = self.components_.T if self.score == "combined" else None
            self.whitening_ = whitening_root(C, self.ridge_, without=U)

    def _refuse_full_rank(self, axes: PrincipalAxes) -> None:
        """Refuse a subspace that leaves nothing outside: the residual would be rounding alone."""
        d, k = self.n_features_in_, self.n_components_
        free = self._free(axes.n)
        if not axes.total > 0:
            raise InputError(
                f"the variance of all rows is {axes.total / free}, and must be above 0 to measure deviations by: "
                "the rows are all the same, or a site sends what it should not"
            )
        rest = self.noise_variance_ * (min(axes.n, d) - k)
        if self.score != "mahalanobis" and not rest > ROUNDING * axes.total / free:
            raise InputError(
                f"n_components={k} must be below the rank of the data, because score={self.score!r} measures what lies "
                f"outside the subspace, and nothing does (n_features={d}, n_samples={axes.n}): ask for fewer"
            )

    def _pca(self, d: int) -> FedPCA:
        """Return the estimator of the subspace of `d` columns."""
        options: dict[str, Any] = dict(self.solver_options or {})
        for name in ("solver", "center", "scale", "aggregator"):
            options[name] = getattr(self, name)
        return FedPCA(usual_dimension(d) if self.n_components is None else self.n_components, **options)

    def _share_columns(self, pca: FedPCA) -> None:
        """Tell `pca`, which learns within this estimator's run, what columns and sites there are."""
        for name in ("n_features_in_", "feature_names_in_", "sites_"):
            if hasattr(self, name):
                setattr(pca, name, getattr(self, name))

    def _resilient(self, rule: Aggregator) -> Aggregator | None:
        """Return the aggregator: the one asked for, else `rule` where the solver is resilient, else none."""
        return self.aggregator or (rule if SOLVERS[self.solver].resilient else None)

    def _single_replies(self) -> str | None:
        return super()._single_replies() if SOLVERS[self.solver].sums_only else f"(solver={self.solver!r})"

    def _check_parameters(self) -> None:
        self._check_quantile()
        one_of("score", self.score, SCORES)
        real_number("ridge", self.ridge, above=0)
        for name in ("center", "scale"):
            true_or_false(name, getattr(self, name))
        if not isinstance(self.left_out, bool | np.bool_) and self.left_out != "auto":
            raise InputError(f"left_out={self.left_out!r} must be True, False or 'auto'")
        options = self.solver_options
        if options is not None and not isinstance(options, Mapping):
            raise InputError(f"solver_options={options!r} must be a dict of parameters of FedPCA, or None")
        allowed = sorted(set(FedPCA().get_params()) - set(self.get_params(deep=False)))
        unknown = sorted(set(options or {}) - set(allowed))
        if unknown:
            raise InputError(f"solver_options has {unknown[0]!r}, and may have {', '.join(allowed)}")
        self._pca(2)._check_parameters()
