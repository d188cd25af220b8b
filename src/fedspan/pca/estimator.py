"""FedPCA: principal component analysis of rows that stay at their sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_array, check_is_fitted

from fedspan.aggregation import Aggregator, CoordinateMedian
from fedspan.arrays import Array
from fedspan.base import Learner, LearnsOn, WeightedTransformer, check_aggregator, in_single_precision, secure
from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Policy
from fedspan.pca.covariance import moment_axes
from fedspan.pca.noisy_covariance import NoisyCovariance, noisy_covariance
from fedspan.pca.parts.consensus import check_settings
from fedspan.pca.parts.kept_axes import KeptAxes, axes_with_new
from fedspan.pca.parts.likely_rank import likely_rank
from fedspan.pca.parts.principal_axes import residual
from fedspan.pca.solvers import SOLVERS, Solution, cheaper_solver, solve, widest_products
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.sums.batches import kept_moments, known_moments, learned_on
from fedspan.sums.columns import Columns
from fedspan.sums.moments import Moments, deviations, learned, moments, moments_of, row_moments, site_weights
from fedspan.sums.one_round import ALL_WIDTHS, MergedMoments, OneRound
from fedspan.sums.row_blocks import dense_parts
from fedspan.sums.row_moments import RowMoments
from fedspan.sums.row_transforms import project, standardize

#: Of the column with the largest variance: products of smaller numbers lose digits, because numbers end at 1e-308.
_LEAST_VARIANCE = 1e-285
#: A share of the variance that is known to ten digits from the difference of two sums.
_CLEAR_SHARE = 1e-5
#: Tables of a stream with more columns keep axes in place of all products, with solver "subspace_iteration".
_EXACT_COLUMNS = 1000
#: A share of the variance that is rounding alone: the square of the distance of two numbers next to each other.
_NO_NOISE = 1e-28
#: Rows whose likelihoods are computed at a time, in a processor's cache.
_SCORED_ROWS = 2048


@dataclass(eq=False, repr=False)
class FedPCA(ClassNamePrefixFeaturesOutMixin, WeightedTransformer, LearnsOn):
    """Principal component analysis.

    Parameters
    ----------
    n_components : int, float, "auto", "mle" or None, default=None
        The number of components, a share of the variance between 0 and 1, ``"mle"`` for the most likely number (Minka,
        2000; both with solver ``"covariance"``), or all.
        ``"auto"`` (solver ``"subspace_median"``): the directions that most sites share, of the `max_components` (at
        most half of the columns) that each of them sends. Reliable only with many more columns than that.
    solver : str, default="auto"
        Exact, and any malicious site can spoil the result. Only sums are needed, except by the last three:

        - ``"auto"``: the first or the second, by the bytes they need; the record shows which and why.
        - ``"covariance"``: one round, d (d + 1) / 2 numbers up per site.
        - ``"subspace_iteration"``: exact to `tol`, d (k + oversampling) numbers each way per round.
        - ``"power"``: `iterations` rounds of the plain power method, d k numbers each way; a baseline.
        - ``"stack"``: one shot, d k numbers up per site, an approximation.
        - ``"fedpg"``, ``"fedpe"``: consensus by ADMM, on the manifold and in Euclidean space, d k numbers each way per
          visit. For sites that answer only now and then: `participation` is the share of them in each round. Exact to
          `tol` in time; slower, and with more bytes, than the others.

        Resilient: fewer than half of the sites can do bounded harm, if the others agree (see ``resilience_``). Single
        replies are needed:

        - ``"subspace_median"``: one shot, d k numbers up per site, and k^2 for the variances.
        - ``"median_of_means"``: power methods within `groups` of sites, then the subspace median: fewer than half of
          the *groups* may hold a malicious site.
        - ``"resilient_power"``, ``"resilient_covariance"``: baselines, by an aggregator of products or covariances;
          their bound is weak, and malicious sites can cost a direction.
    center, scale : bool, default=True, False
        Whether to subtract the mean of all rows, and to divide by the deviation of each column.
    whiten : bool, default=False
        Whether `transform` divides each coordinate by its deviation, as in scikit-learn. ``components_`` stay the same.
    aggregator : Aggregator, optional
        Combines moments, products, covariances and variances of the sites, instead of sums (the means within the
        groups of ``"median_of_means"`` stay means). Default: none for the exact solvers; for the resilient ones the
        coordinate-wise median of means and deviations, and the geometric median otherwise.
    output : {"trimmed", "eigenspace", "node"}, default="trimmed"
        Of the subspace medians. The mean of the sites near the smallest ball that holds a majority, the leading
        eigenspace of the median projector, or the paper's: the subspace of the site nearest to that.
    groups, iterations : int, default=None, 10
        Of ``"median_of_means"`` (default: half the number of sites), and of the power methods.
    max_components, oversampling : int, default=16, 8
        Directions that sites send for ``n_components="auto"``, and extra columns of subspace iteration.
    max_rounds : int, optional
        Of subspace iteration (default 200) and ADMM (500 over `participation`).
    tol : float, optional
        When to stop. Subspace iteration: at this relative residual (default 1e-8). ADMM: when the sites are this near
        to the consensus (root mean square, default 1e-4), and the loss has settled.
    variant : {"corrected", "paper"}, default="corrected"
        Of ADMM; ``"paper"`` is as published, and the result is the span of the last Z.
    rho : float, optional
        Of ADMM: weight of the consensus, in units of the largest eigenvalue of the sites' second moments. Default: 0.35
        for ``"fedpg"``, 1 for ``"fedpe"``, and more where the sites do not agree; for ``variant="paper"`` the paper's.
    local_steps, participation : int, float, default=10, 1.0
        Of ADMM: gradient steps of a site per visit, and share of the sites in each round.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy, with solver ``"auto"`` or ``"covariance"``: one sum of the products of rows within public
        bounds, with noise, and nothing else (see ``docs/privacy.md``). Values that are not finite are not reported.
    random_state, verbose : int, optional
        Seed of the run: the start of iterations, and the draw of sites. 1 shows a progress bar when the fit takes
        longer than two seconds.

    Attributes
    ----------
    components_ : array (k, d)
        Orthonormal rows; the largest entry of each by magnitude is positive, as in scikit-learn. In single precision
        after a fit on a table of float32.
    explained_variance_, explained_variance_ratio_, singular_values_ : array (k,)
    mean_, scale_ : array (d,)
        ``scale_`` is ``None`` without `scale`.
    noise_variance_ : float
    n_components_, n_samples_ : int
        With a resilient solver or an aggregator ``n_samples_`` is an estimate: the number of sites times the median
        number of rows that they report. ``singular_values_`` are in proportion to its root.
    solver_ : str
    sites_trusted_ : tuple of str
        The sites that the axes rest on. Subspace medians: those within 1.5 radii of the smallest ball round a site that
        holds a majority. For ``output="node"`` the one site, if it is among them. Other aggregators: those with at
        least half an equal share of the weight. Otherwise all that answered.
    resilience_ : structured array (one per number of malicious sites) or None
        Of the subspace medians: ``malicious`` = 1, 2, ... below half of the sites, ``radius`` of the smallest ball
        round a site that holds all others, and ``bound``. Let at most `malicious` sites be malicious. If the honest
        ones lie within two radii of one of them, the components are within `bound` of that site's. It is a distance of
        projectors (Frobenius), at most the root of 2 k. With ``"median_of_means"`` groups take the place of sites.
    site_weights_ : array (one per site)
        Their weights, in the order of ``sites_``; 0 for sites that did not count.
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_, run_ : tuple of str, RunRecord

    Notes
    -----
    ``"covariance"`` is one call: each site sends its columns, its mean and the products about it. One more follows
    where ``noise_variance_`` is so small that rounding would decide it. With secure sums it is three calls (columns,
    sums, centred products), and with `scale` one more. Other solvers have two calls (columns, moments) before their own
    ones, or three with secure sums or an aggregator, and one after them, for ``noise_variance_``.

    Memory at the coordinator: d^2 for ``"covariance"`` (L d^2 / 2 until L replies are merged), and L d^2 / 2 for
    ``"resilient_covariance"``. Otherwise it is d times the number of directions, and times the number of sites L where
    single replies are needed.

    For ``partial_fit`` the model keeps d (d + 1) / 2 products of columns. With ``decay=1`` the components are those of
    all rows at once. With solver ``"subspace_iteration"`` a table of more than 1,000 columns keeps k + `oversampling`
    axes instead, each as long as its spread. They stand for the rows before. What lies outside of them is lost (see
    `fedspan.pca.parts.kept_axes`).

    Examples
    --------
    >>> X = np.array([[2.0, 0.1], [-2.0, -0.1], [4.0, 0.3], [-4.0, -0.3]])
    >>> FedPCA(1).fit(X, sites=["a", "b", "a", "b"]).components_
    array([[0.9975..., 0.0698...]])
    """

    takes_sparse = True

    n_components: int | float | str | None = None
    _: KW_ONLY
    solver: str = "auto"
    center: bool = True
    scale: bool = False
    whiten: bool = False
    aggregator: Aggregator | None = None
    output: str = "trimmed"
    groups: int | None = None
    iterations: int = 10
    max_components: int = 16
    oversampling: int = 8
    max_rounds: int | None = None
    tol: float | None = None
    variant: str = "corrected"
    rho: float | None = None
    local_steps: int = 10
    participation: float = 1.0
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Learn the components from a table (with ``sites``) or a federation.

        A row counts as often as its ``sample_weight`` states (solver ``"covariance"``); the sites of a federation have
        their own weights.
        """
        self._check_parameters()
        one = self.one_round(X)
        with self._fitting(X, y, sites, sample_weight=sample_weight, agree=one, ensure_min_samples=2) as fed:
            self._learn(fed, None if one is None else one.found)
        if in_single_precision(X):
            self.components_: Array = self.components_.astype(np.float32)
        return self

    def _learner(self, X: Any) -> tuple[bool, Learner | None]:
        self._check_parameters()
        streams = ("auto", "covariance", "subspace_iteration")
        if self.aggregator is not None or self.privacy is not None or self.solver not in streams:
            raise InputError(
                "partial_fit adds exact moments up: it takes solver='covariance' or 'subspace_iteration', and neither "
                "aggregator=... nor privacy=..."
            )
        first = not hasattr(self, "components_")
        if self.solver == "subspace_iteration":
            return first, self._learn_first_axes if first else self._learn_axes_on
        exact = first and not secure(X)  # secure sums have other rounds
        return first, None if exact else self._keep_moments if first else self._learn_on

    def _learn_batch(self, *given: Any, **options: Any) -> Self:
        """Learn from a batch; "auto" is the solver "covariance" here, which keeps the moments."""
        solver, self.solver = self.solver, self.solver if self.solver == "subspace_iteration" else "covariance"
        try:
            return super()._learn_batch(*given, **options)
        finally:
            self.solver = solver

    def _keep_moments(self, fed: Federation, factor: float = 1.0) -> None:
        self.moments_ = kept_moments(row_moments(fed, self._names(), widest=ALL_WIDTHS)[0])

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Learn from new rows; `factor` multiplies the weight of earlier rows."""
        self._learn(fed, self._moments_with_new(fed, factor), of_all=True)

    def _learn_first_axes(self, fed: Federation, factor: float) -> None:
        """Keep what later batches are added to: all products of columns, or of wide tables some axes."""
        if self.n_features_in_ > _EXACT_COLUMNS:
            return self._learn_axes(fed, None, 1.0)
        return self._keep_moments(fed)

    def _learn_axes_on(self, fed: Federation, factor: float) -> None:
        if not hasattr(self, "kept_axes_"):
            self.solver = "covariance"
            try:
                return self._learn_on(fed, factor)
            finally:
                self.solver = "subspace_iteration"
        known = known_moments(self.moments_, self.n_features_in_)
        return self._learn_axes(fed, KeptAxes(known, self.kept_axes_, self.mean_, self.scale_), factor)

    def _learn_axes(self, fed: Federation, before: KeptAxes | None, factor: float) -> None:
        """Learn from new rows and the axes of those before."""
        new, sites = row_moments(fed, self._names())
        rank = self._rank(moments_of(new if before is None else RowMoments.merged([before.moments, new])))
        named = {name: getattr(self, name) for name in ("center", "scale", "oversampling", "max_rounds", "tol")}
        options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        kept, axes, weights = axes_with_new(new, before, fed, factor=factor, rank=rank, **options)
        self.mean_, self.scale_, self.solver_ = kept.mean, kept.scale, self.solver
        self.moments_, self.kept_axes_ = kept_moments(kept.moments), kept.rows
        self._keep(Solution(axes, weights, sites), rank)
        rest = max(axes.total - float(axes.scatter[: self.n_components_].sum()), 0.0)
        self.noise_variance_ = self._noise_variance(lambda: (rest, axes.n))

    def _moments_with_new(self, fed: Federation, factor: float) -> MergedMoments:
        """Return the moments of the rows before, which count by `factor`, and of the new ones."""
        kept = getattr(self, "moments_", None)
        if kept is None:
            raise InputError("this model keeps no moments to learn on from: fit it with solver='covariance'")
        new, sites = row_moments(fed, self._names(), widest=ALL_WIDTHS)
        d = self.n_features_in_
        return MergedMoments(learned_on(kept, d, new, factor), sites, Columns(d, self._names()), np.zeros(d, np.int64))

    def one_round(self, X: Any, *, at_least: int = 0) -> OneRound | None:
        """Return the call that sends columns and moments at once, unless an aggregator, noise or secure sum forbids it.

        Products come of tables of at least this number of columns, where their bytes are allowed: for estimators that
        learn components within their own run.
        """
        if self.privacy is not None or self._column_aggregator() is not None or secure(X):
            return None
        policy = X.policy if isinstance(X, Federation) else Policy()
        also = min(at_least, widest_products(None, 0, policy.max_bytes)) if self.solver == "auto" else 0
        return OneRound(max(self._widest(policy), also))

    def _widest(self, policy: Policy) -> int:
        """Return the number of columns up to which the sites send all products of columns with the moments."""
        if self.solver == "covariance":
            return ALL_WIDTHS
        if self.solver != "auto":
            return 0
        k = self.n_components if isinstance(self.n_components, int | np.integer) else None
        return widest_products(k if k is None else int(k), (k or 0) + self.oversampling, policy.max_bytes)

    def _moments(self, fed: Federation, merged: MergedMoments | None) -> tuple[Moments, RowMoments | None]:
        """Return means and variances; where there is no aggregator also the products that they came with."""
        aggregator = self._column_aggregator()
        if aggregator is not None:
            return moments(fed, self._names(), aggregator), None
        if merged is not None:
            rows, sites = learned(merged, fed, self._names()), merged.sites
        else:
            # Secure sums have a fixed resolution: of rows in their own units products may lose digits.
            widest = 0 if fed.policy.secure_sum and self.scale else self._widest(fed.policy)
            rows, sites = row_moments(fed, self._names(), widest=widest)
        return moments_of(rows, sites), rows

    def _learn(
        self, fed: Federation, merged: MergedMoments | None = None, *, all_axes: bool = False, of_all: bool = False
    ) -> Solution:
        """Learn within a run that has begun, and return what the solver found.

        `merged` are moments that came with the columns; `of_all` if they are also of rows that the sites no longer
        have. With `all_axes` the solution includes axes beyond `n_components` (solvers that send covariances).
        """
        if self.privacy is not None:
            return self._keep_noisy(
                noisy_covariance(fed, privacy=self.privacy, n_columns=self.n_features_in_), all_axes=all_axes
            )
        found, rows = self._moments(fed, merged)
        rank = self._rank(found)
        if 0.0 < found.variance.max() < _LEAST_VARIANCE:
            raise InputError(
                f"the largest variance of a column is {found.variance.max():.1g}, too small for the digits of its "
                "products: multiply the columns first"
            )
        self.mean_ = found.mean if self.center else np.zeros(len(found.mean))
        self.scale_ = deviations(found) if self.scale else None
        prepared = partial(fed.apply, standardize, **self._transform_parameters(), double=True)
        self.solver_ = self._chosen_solver(fed, rank)
        wanted = {"rank": None if all_axes or self._is_share() else rank, "choose": self.n_components == "auto"}
        exact = self.solver_ == "covariance" and rows is not None and rows.has_products
        self.__dict__.pop("moments_", None)
        if exact and rows is not None:
            self.moments_ = kept_moments(rows)
            axes = moment_axes(rows, center=self.center, scale=self.scale_, rank=wanted["rank"])
            solution = Solution(axes, site_weights(found.sites), found.sites)
        else:
            known = {**self.get_params(deep=False), "n_columns": self.n_features_in_}
            solution = solve(self.solver_, prepared(), {**known, **wanted})
        self._keep(solution, rank)
        rest = solution.axes.total - float(solution.axes.scatter[: self.n_components_].sum())
        clear = exact and (of_all or rest > _CLEAR_SHARE * solution.axes.total)

        def outside() -> tuple[float, float]:
            if clear:
                return max(rest, 0.0), solution.axes.n
            return residual(prepared(), components=self.components_, aggregator=self._column_aggregator())

        self.noise_variance_ = self._noise_variance(outside)
        return solution

    def _keep_noisy(self, found: NoisyCovariance, *, all_axes: bool = False) -> Solution:
        """Learn from a covariance with noise, and from nothing else."""
        rank = self._rank(Moments(found.n, found.mean, np.diag(found.covariance)))
        self.mean_ = found.mean if self.center else np.zeros(len(found.mean))
        self.scale_ = found.deviations() if self.scale else None
        self.solver_ = "covariance"
        wanted = None if all_axes or self._is_share() else rank
        axes = found.axes(center=self.center, scale=self.scale_, rank=wanted)
        solution = Solution(axes, site_weights(found.sites), found.sites)
        self._keep(solution, rank)
        k, n = self.n_components_, self.n_samples_
        rest = max(axes.total - float(axes.scatter[:k].sum()), 0.0) / max(1, n - 1 if self.center else n)
        self.noise_variance_ = rest / max(1, min(n, self.n_features_in_) - k)
        return solution

    def transform(self, X: Any) -> Any:
        """Return the coordinates of rows; for a federation, one whose sites compute them locally."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            centred = X.apply(standardize, columns=self._names(), **self._transform_parameters())
            return centred.apply(project, components=self._axes())
        parts = (standardize(part, **self._transform_parameters()) for part in dense_parts(self._validated(X)))
        return np.concatenate([project(part, components=self._axes()) for part in parts])

    def inverse_transform(self, X: Any) -> Array:
        """Return the rows that have the coordinates `X` (n, k)."""
        check_is_fitted(self)
        T = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        if T.shape[1] != self.n_components_:
            raise InputError(
                f"X has {T.shape[1]} columns, and inverse_transform needs the {self.n_components_} coordinates that "
                "transform returns"
            )
        rows = (T * self._deviations() if self.whiten else T) @ self.components_.astype(np.float64)
        rows = rows if self.scale_ is None else rows * self.scale_
        return cast(Array, (rows + self.mean_).astype(T.dtype))

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the log-likelihood of each row under probabilistic PCA, as scikit-learn does."""
        check_is_fitted(self)
        parts = dense_parts(self._validated(X))
        blocks = (part[at : at + _SCORED_ROWS] for part in parts for at in range(0, len(part), _SCORED_ROWS))
        return np.concatenate([self._likelihoods(block) for block in blocks])

    def _likelihoods(self, X: Array) -> NDArray[np.float64]:
        D = standardize(X, **self._transform_parameters()).astype(np.float64, copy=False)
        d, k = self.n_features_in_, self.n_components_
        noise, spread = self.noise_variance_, self.explained_variance_
        # Rounding alone decides whether a variance below this one is 0.
        least = np.finfo(np.float64).eps * spread[0]
        if (k < d and min(noise, spread[-1]) <= least) or spread[0] <= 0:
            raise InputError(f"score_samples needs some variance outside the {k} components: keep fewer")
        spread = np.maximum(spread, least)
        T = D @ self.components_.T
        inside = np.sum(T**2 / spread, axis=1)
        R = D - T @ self.components_
        outside = np.sum(R**2, axis=1) / noise if k < d else 0.0
        log_det = float(np.sum(np.log(spread))) + ((d - k) * np.log(noise) if k < d else 0.0)
        if self.scale_ is not None:
            log_det += 2 * float(np.sum(np.log(self.scale_)))
        return cast(NDArray[np.float64], -0.5 * (d * np.log(2 * np.pi) + log_det + inside + outside))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> NDArray[np.float64]:
        """Return the covariance (d, d) of the model, in the units of the (scaled) data."""
        check_is_fitted(self)
        excess = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        covariance = (self.components_.T * excess) @ self.components_.astype(np.float64)
        covariance.flat[:: len(covariance) + 1] += self.noise_variance_
        return covariance

    def get_precision(self) -> NDArray[np.float64]:
        """Return the inverse (d, d) of `get_covariance`."""
        check_is_fitted(self)
        noise, k = self.noise_variance_, self.n_components_
        variance = np.maximum(self.explained_variance_, noise)
        if (noise <= _NO_NOISE * variance[0] and k < self.n_features_in_) or variance[-1] <= 0:
            raise InputError(
                f"the covariance of the model has no inverse, because there is no variance outside the {k} components: "
                "keep fewer"
            )
        outside = 1.0 / noise if k < self.n_features_in_ else 0.0
        precision = (self.components_.T * (1.0 / variance - outside)) @ self.components_.astype(np.float64)
        precision.flat[:: len(precision) + 1] += outside
        return precision

    def _axes(self) -> Array:
        """Return the directions (k, d) whose products with centred rows are the coordinates."""
        return self.components_ / self._deviations()[:, None] if self.whiten else self.components_

    def _deviations(self) -> Array:
        """Return the deviations (k,) along the components, at least scikit-learn's smallest number."""
        return np.maximum(np.sqrt(self.explained_variance_), np.finfo(np.float64).eps)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _transform_parameters(self) -> dict[str, Any]:
        return {"mean": self.mean_ if self.center else None, "scale": self.scale_}

    def _single_replies(self) -> str | None:
        return super()._single_replies() if SOLVERS[self.solver].sums_only else f"(solver={self.solver!r})"

    def _check_weights(self) -> None:
        self._refuse_weights_with(privacy=self.privacy, aggregator=self.aggregator)
        self._refuse_weights_with(solver=None if self.solver in ("auto", "covariance") else self.solver)

    def _totals_will_do(self) -> bool:
        return SOLVERS[self.solver].totals

    def _column_aggregator(self) -> Aggregator | None:
        """Return what combines the sites' means, deviations and residuals; ``None`` for exact sums."""
        return self.aggregator or (CoordinateMedian() if SOLVERS[self.solver].resilient else None)

    def _check_parameters(self) -> None:
        one_of("solver", self.solver, tuple(SOLVERS))
        one_of("output", self.output, ("eigenspace", "node", "trimmed"))
        check_aggregator(self.aggregator)
        check_moments(self.privacy, self.aggregator)
        if self.privacy is not None and self.solver not in ("auto", "covariance"):
            raise InputError(f"solver={self.solver!r} has no noise: with privacy=... use 'covariance'")
        if self.solver == "stack" and self.aggregator is not None:
            raise InputError("solver='stack' averages nothing, and takes no aggregator: choose another solver")
        k = self.n_components
        averaged = self.solver == "subspace_median" and self.output != "node"
        if isinstance(k, str) and k != "mle" and not (k == "auto" and averaged):
            raise InputError(
                f"n_components={k!r} must be a number, 'mle', or 'auto' with solver='subspace_median' and an output "
                "that is not 'node'"
            )
        if self._is_share():
            if k != "mle":
                real_number("n_components", k, above=0, below=1, why=" as a share of the variance, or a whole number")
            if self.solver not in ("auto", "covariance"):
                raise InputError(
                    f"n_components={k!r} needs all variances, which solver={self.solver!r} cannot know: use "
                    "'covariance'"
                )
        check_settings(self)
        for name, least in {"oversampling": 0, "iterations": 1, "max_components": 1, "groups": 1}.items():
            if name != "groups" or self.groups is not None:
                whole_number(name, getattr(self, name), least)

    def _is_share(self) -> bool:
        """Return whether the number of components depends on all variances."""
        return self.n_components == "mle" or isinstance(self.n_components, float | np.floating)

    def _rank(self, found: Moments) -> int:
        """Return the number of axes to request: at most the smaller of rows and columns."""
        most = min(int(found.weight), len(found.mean))
        if found.weight < 2:
            if found.n >= 2:
                raise InputError(
                    f"sample_weight adds up to {found.weight:g}, and a weight is the number of times that a row "
                    "counts: PCA needs at least 2 in all, multiply the weights"
                )
            raise InputError(f"n_samples={found.n}: PCA needs at least two rows")
        k = self.n_components
        if k == "mle" and found.weight < len(found.mean):
            raise InputError(
                f"n_components='mle' needs at least as many rows as columns, and there are {found.weight:g} rows of "
                f"{len(found.mean)} columns: choose a number"
            )
        if k is None or self._is_share():
            return most
        if k == "auto":
            return max(1, min(self.max_components, most // 2))
        return whole_number("n_components", k, 1, most, why=", the smaller of n_samples and n_features")

    def _chosen_solver(self, fed: Federation, rank: int) -> str:
        if self.solver != "auto":
            return self.solver
        chosen, why = "covariance", "the number of components depends on all variances"
        if not self._is_share():
            chosen, why = cheaper_solver(self.n_features_in_, rank + self.oversampling, fed.policy.max_bytes)
        fed.log(solver=chosen, why=why)
        return chosen

    def _keep(self, solution: Solution, rank: int) -> None:
        """Set the fitted attributes, in scikit-learn's units."""
        axes = solution.axes
        self.sites_trusted_, self.resilience_ = solution.trusted, solution.resilience
        self.site_weights_ = np.array([solution.weights.get(name, 0.0) for name in self.sites_])
        n = axes.n  # rows of the sites whose replies are in the axes
        free = max(1, n - 1 if self.center else n)
        k = min(len(axes.scatter), int(n), self.n_features_in_, rank)
        variance, total = axes.scatter[:k] / free, axes.total / free
        ratio = variance / total if total > 0 else np.zeros(k)
        if self.n_components == "mle":
            k = likely_rank(variance, n)
        elif self._is_share():
            share = float(cast(float, self.n_components))
            k = min(k, int(np.searchsorted(np.cumsum(ratio), share, side="right")) + 1)
        self.n_samples_ = n
        self.n_components_ = k
        self.components_ = np.ascontiguousarray(axes.components[:k])
        self.explained_variance_ = variance[:k]
        self.explained_variance_ratio_ = ratio[:k]
        self.singular_values_ = np.sqrt(axes.scatter[:k])

    def _noise_variance(self, outside: Callable[[], tuple[float, float]]) -> float:
        """Return the mean variance outside the components, as scikit-learn defines it.

        `outside` returns the scatter outside of them and the number of rows; it may request them from the sites.
        """
        dimensions = min(int(self.n_samples_), self.n_features_in_) - self.n_components_
        if dimensions <= 0:
            return 0.0
        rest, n = outside()
        return rest / max(1, n - 1 if self.center else n) / dimensions
