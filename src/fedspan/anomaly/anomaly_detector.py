"""FedAnomalyDetector: several detectors by sums, whose ranks of a row are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator, CoordinateMedian
from fedspan.anomaly.centers_detector import FedCentersDetector
from fedspan.anomaly.isolation_detector import FedIsolationDetector
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.parts.member_scores import learned_ranks, member_scores, rank_parts, summed_ranks
from fedspan.anomaly.parts.score_grid import HIGH, MIDDLE, placed_edges, quantile_between, score_counts
from fedspan.anomaly.pca_detector import FedPCADetector
from fedspan.base import check_aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_moments import RowMoments

Array = NDArray[Any]
Vector = NDArray[np.float64]

#: The members, in the order of their scores, and the attributes that each keeps.
MEMBERS = {
    "centers": ("mean_", "scale_", "moments_", "centers_", "center_sizes_"),
    "isolation": ("features_", "cuts_", "leaf_counts_"),
    "mahalanobis": (
        *("mean_", "scale_", "components_", "explained_variance_", "noise_variance_", "n_components_"),
        *("whitening_", "ridge_", "left_out_", "moments_"),
    ),
}


class FedAnomalyDetector(ExplainedDetector):
    """Detect anomalies by three detectors that see different things, and need sums of the sites alone.

    - ``"centers"``: distance to the nearest centres of k-means (`FedCentersDetector`), for rows where none are near;
    - ``"isolation"``: depth in random trees (`FedIsolationDetector`), for values that few rows have;
    - ``"mahalanobis"``: distance in units of the covariance (`FedPCADetector`), for columns that do not fit together.

    A member's score counts by its rank among the training scores, and beyond their 0.95 quantile also by how far it is
    beyond; the ranks are summed. Fit it on rows that are normal, or nearly all so.

    Rows whose score is above the `quantile` of the training scores are outliers. Training rows are scored as if each
    had been left out, so that the false positive rate on new rows of the same distribution is about 1 - quantile.

    Parameters
    ----------
    members : tuple of str, default=("centers", "isolation", "mahalanobis")
    quantile : float, default=0.95
        Of the training scores.
    n_centers : int, optional
        As of `FedCentersDetector`.
    n_trees : int, default=100
        As of `FedIsolationDetector`.
    ridge : float, default=1e-4
        As of `FedPCADetector`.
    least_rows : int, default=1
        As of `FedKMeans`, for the centres.
    aggregator : Aggregator, optional
        Where sites may be malicious, for the members ``"isolation"`` and ``"mahalanobis"`` (which needs
        `fedspan.aggregation.GeometricMedian()` or another rule that takes matrices): it combines the sites' messages
        instead of sums. There are no such centres: choose ``members=("isolation", "mahalanobis")``.
    random_state : int, optional
        Seed of the run.
    verbose : int, default=0
        1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    members_ : tuple of str
        The members in the order of their scores.
    mean_, scale_, centers_, center_sizes_, features_, cuts_, leaf_counts_, whitening_, ...
        Of the members, as of their own estimators.
    score_edges_, score_counts_ : array (m, 257) and (m, 258)
        The training scores of each member: edges, and the number of rows up to, between and above them.
    score_quantiles_ : array (m, 2)
        The median and 0.95 quantile of these scores.
    n_samples_ : int
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site: what the members need (see their notes), then 514 counts per member in each of 8 rounds for the
    ranks, 257 counts in each of 8 rounds for the threshold, and for `drift` 22 counts per column and direction.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) * [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=(500, 3))
    >>> detector = FedAnomalyDetector(random_state=0).fit(X, sites=np.arange(500) % 5)
    >>> detector.predict([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]])
    array([ 1, -1])
    >>> detector.member_scores([[1.0, 2.0, -3.0]]).shape
    (1, 3)
    """

    mean_: Vector
    scale_: Vector | None
    n_samples_: int
    features_: NDArray[np.int64]
    cuts_: Vector
    score_edges_: Vector
    score_counts_: Vector
    score_quantiles_: Vector

    def __init__(
        self,
        *,
        members: tuple[str, ...] = ("centers", "isolation", "mahalanobis"),
        quantile: float = 0.95,
        n_centers: int | None = None,
        n_trees: int = 100,
        ridge: float = 1e-4,
        least_rows: int = 1,
        aggregator: Aggregator | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.members = members
        self.quantile = quantile
        self.n_centers = n_centers
        self.n_trees = n_trees
        self.ridge = ridge
        self.least_rows = least_rows
        self.aggregator = aggregator
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the members, their ranks and the threshold from a table (with ``sites``) or a federation."""
        chosen = self._check_parameters()
        with self._fitting(X, y, sites, ensure_min_samples=2) as fed:
            self.members_ = chosen
            self._learn_members(fed)
            self._learn_ranks(fed)
            self._learn_threshold(fed, self._of_shares())
            fed.log(threshold=-self.offset_)
        return self

    def member_scores(self, X: Any) -> Vector:
        """Return the anomaly score of each row by each member (n, m), in the order of ``members_``."""
        check_is_fitted(self)
        return member_scores(self._validated(X), **self._parameters())

    def _check_parameters(self) -> tuple[str, ...]:
        """Return the members in their order."""
        self._check_quantile()
        check_aggregator(self.aggregator)
        given = self.members
        known = isinstance(given, tuple | list) and all(isinstance(name, str) and name in MEMBERS for name in given)
        if not known or not given or len(set(given)) < len(given):
            raise InputError(f"members={given!r} must be a tuple of different names of {', '.join(map(repr, MEMBERS))}")
        if self.aggregator is not None and "centers" in given:
            raise InputError(
                "aggregator=... has no effect on centres, which are means of few rows: "
                "choose members=('isolation', 'mahalanobis')"
            )
        chosen = tuple(name for name in MEMBERS if name in given)
        for name in chosen:
            self._member(name)._check_parameters()
        return chosen

    def _member(self, name: str) -> Any:
        """Return the estimator of a member, with what it has learned so far."""
        makers: dict[str, Callable[[], Any]] = {
            "centers": lambda: FedCentersDetector(n_centers=self.n_centers, least_rows=self.least_rows),
            "isolation": lambda: FedIsolationDetector(n_trees=self.n_trees, aggregator=self._of_shares()),
            "mahalanobis": lambda: FedPCADetector(ridge=self.ridge, aggregator=self.aggregator, left_out=True),
        }
        member = makers[name]()
        member.quantile = self.quantile
        for known in ("n_features_in_", "feature_names_in_", "names_before_", "sites_", "n_samples_", *MEMBERS[name]):
            if hasattr(self, known):
                setattr(member, known, getattr(self, known))
        return member

    def _of_shares(self) -> Aggregator | None:
        """Return the rule for shares of rows: with any aggregator their median, entry by entry."""
        return None if self.aggregator is None else CoordinateMedian()

    def _learn_members(self, fed: Federation) -> None:
        """Learn the members. The covariance comes first: the centres are in the same units."""
        if "mahalanobis" in self.members_:
            member = self._member("mahalanobis")
            member._learn_model(fed)
            member._choose_left_out()
            self._take_over("mahalanobis", member)
        elif "centers" in self.members_:
            member = self._member("centers")
            self.n_samples_ = member._learn_columns(fed)
            self.mean_, self.scale_, self.moments_ = member.mean_, member.scale_, member.moments_
        if "centers" in self.members_:
            member = self._member("centers")
            member._learn_model(fed, self.n_samples_)
            self._take_over("centers", member)
        if "isolation" in self.members_:
            member = self._member("isolation")
            member._learn_model(fed)
            self._take_over("isolation", member)

    def _take_over(self, name: str, member: Any) -> None:
        for known in (*MEMBERS[name], "n_samples_"):
            if hasattr(member, known):
                setattr(self, known, getattr(member, known))

    def _change_units(self, factor: Vector, shift: Vector) -> None:
        super()._change_units(factor, shift)
        if "isolation" in self.members_:
            self.cuts_ = factor[self.features_] * self.cuts_ + shift[self.features_]

    def _keep_sums(self, fed: Federation) -> None:
        if "mahalanobis" in self.members_:
            member = self._member("mahalanobis")
            member._keep_sums(fed)
            self.moments_ = member.moments_

    def _learn_kept(self, rows: RowMoments, found: dict[str, Any], factor: float, fed: Federation) -> None:
        centers = self._member("centers") if "centers" in self.members_ else None
        if "mahalanobis" in self.members_:
            member = self._member("mahalanobis")
            member._learn_kept(rows, found, factor, fed)
            self._take_over("mahalanobis", member)
            if centers is not None:
                centers._take_sums(found, factor, self.mean_, self.scale_)
                centers.moments_ = self.moments_
        elif centers is not None:
            centers._learn_kept(rows, found, factor, fed)
        if centers is not None:
            self._take_over("centers", centers)
        if "isolation" in self.members_:
            member = self._member("isolation")
            member._learn_kept(rows, found, factor, fed)
            self._take_over("isolation", member)
        self._count_members(factor, found["member_counts"])

    def _count_members(self, factor: float, new: Vector) -> None:
        """Add the members' scores of new rows; those before count by `factor`."""
        self.score_counts_ = factor * self.score_counts_ + new
        sketches = list(zip(self.score_edges_, self.score_counts_, strict=True))
        found = [[quantile_between(edges, counts, level) for level in (MIDDLE, HIGH)] for edges, counts in sketches]
        self.score_quantiles_ = np.array(found)

    def _learn_on(self, fed: Federation, factor: float) -> None:
        centers = self._member("centers") if "centers" in self.members_ else None
        if "mahalanobis" in self.members_:
            member = self._member("mahalanobis")
            member._learn_on(fed, factor)
            self._take_over("mahalanobis", member)
            if centers is not None:
                centers._move_centers(fed, factor, self.mean_, self.scale_)
                centers.moments_ = self.moments_
        elif centers is not None:
            centers._learn_on(fed, factor)
        if centers is not None:
            self._take_over("centers", centers)
        if "isolation" in self.members_:
            member = self._member("isolation")
            member._learn_on(fed, factor)
            self._take_over("isolation", member)
        scored = fed.apply(member_scores, **self._parameters(left_out=True))
        self._count_members(factor, score_counts(scored, self.score_edges_, self._of_shares()))

    def _learn_ranks(self, fed: Federation) -> None:
        """Learn the distribution of each member's training scores."""
        scored = fed.apply(member_scores, **self._parameters(left_out=True))
        rule = self._of_shares()
        middle, high = quantiles(scored, level=(MIDDLE, HIGH), aggregator=rule)
        self.score_quantiles_ = np.column_stack([middle, high])
        self.score_edges_ = placed_edges(middle, high)
        self.score_counts_ = score_counts(scored, self.score_edges_, rule)

    def _parameters(self, left_out: bool = False) -> dict[str, Any]:
        """Return the parameters of `member_scores`, for new rows or training rows left out."""
        found: dict[str, Any] = {}
        for name in self.members_:
            member = self._member(name)
            found |= (member._training_transform() if left_out else member._score_transform())[1]
        return found

    def _ranks(self) -> dict[str, Any]:
        middle, high = self.score_quantiles_.T
        return learned_ranks(self.score_edges_, self.score_counts_, middle, high)

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        return member_scores, self._parameters()

    def _training_scores(self, fed: Federation) -> Federation:
        return fed.apply(member_scores, **self._parameters(left_out=True)).apply(summed_ranks, **self._ranks())

    def _scored(self, fed: Federation) -> Federation:
        return super()._scored(fed).apply(summed_ranks, **self._ranks())

    def _scores(self, X: Array) -> Vector:
        return np.asarray(summed_ranks(member_scores(X, **self._parameters()), **self._ranks())[:, 0])

    def _level(self) -> float:
        return self._level_of_new_rows()

    def _shares(self, X: Array) -> Vector:
        """Return the mean of the members' shares, each weighted by its part of the summed ranks."""
        parts = rank_parts(member_scores(X, **self._parameters()), **self._ranks())
        shares = np.zeros((len(X), X.shape[1]))
        for weight, name in zip(parts.T, self.members_, strict=True):
            shares += weight[:, None] * self._member(name)._shares(X)
        total = shares.sum(axis=1, keepdims=True)
        return np.asarray(shares / np.where(total > 0, total, 1.0))
