"""FedAnomalyDetector: several detectors by sums, whose ranks of a row are added up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.anomaly.joined_members import MEMBERS, JoinedMembers
from fedspan.anomaly.noisy_members import (
    LARGEST_RANK,
    check_privacy,
    noisy_ranks,
    open_account,
    threshold_search,
)
from fedspan.anomaly.parts.member_scores import learned_ranks, member_scores, rank_parts, summed_ranks
from fedspan.anomaly.parts.score_grid import (
    HIGH,
    MIDDLE,
    placed_edges,
    quantile_between,
    score_counts,
    spread,
    tempered,
)
from fedspan.arrays import Array, Vector
from fedspan.base import check_aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import NoisySums
from fedspan.sums.quantiles import quantiles


@dataclass(eq=False, repr=False)
class FedAnomalyDetector(JoinedMembers):
    """Detect anomalies by three detectors that see different things, and need sums of the sites alone.

    - ``"centers"``: distance to the nearest centres of k-means (`FedCentersDetector`), for rows where none are near;
    - ``"isolation"``: depth in random trees (`FedIsolationDetector`), for values that few rows have;
    - ``"mahalanobis"``: distance in units of the covariance (`FedPCADetector`), for columns that do not fit together.

    A member's score counts by its rank among the training scores, and beyond their 0.95 quantile also by how far it is
    beyond; the ranks are summed. Fit it on rows that are normal, or nearly all so.

    Rows whose score is above the `quantile` of the training scores are outliers. Training rows are scored as if each
    had been left out. So the false positive rate on new rows of the same distribution is about 1 - quantile.

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
        Where sites may be malicious: it combines the sites' covariances instead of a sum, and must take matrices, as
        `fedspan.aggregation.GeometricMedian()` does. Means, shares of rows, moves of centres and shares of scores are
        then combined by their coordinate-wise medians.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy: all sums have noise, of one budget for all members, their ranks and the threshold (see
        ``docs/privacy.md``).
    random_state, verbose : int, optional
        Seed of the run; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    offset_ : float
        Minus the threshold.
    members_ : tuple of str
        The members in the order of their scores.
    mean_, scale_, centers_, center_sizes_, features_, cuts_, leaf_counts_, whitening_, ...
        Of the members, as of their own estimators.
    score_edges_, score_counts_ : array (m, 257) and (m, 258)
        The training scores of each member: edges, and the number of rows up to, between and above them. Under
        `privacy` there are 3 edges.
    score_quantiles_ : array (m, 2)
        The median and 0.95 quantile of these scores.
    n_samples_ : int
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_ : tuple of str
    run_ : RunRecord

    Notes
    -----
    Leaves a site without `privacy`: what the members need (see their notes), then 514 counts per member in each of 8
    rounds for the ranks, 257 counts in each of 8 rounds for the threshold, and for `drift` 22 counts per column and
    direction.

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

    n_samples_: int = field(init=False)
    score_counts_: Vector = field(init=False)
    score_quantiles_: Vector = field(init=False)

    _: KW_ONLY
    members: tuple[str, ...] = ("centers", "isolation", "mahalanobis")
    quantile: float = 0.95
    n_centers: int | None = None
    n_trees: int = 100
    ridge: float = 1e-4
    least_rows: int = 1
    aggregator: Aggregator | None = None
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn the members, their ranks and the threshold from a table (with ``sites``) or a federation."""
        chosen = self._check_parameters()
        with (
            self._fitting(X, y, sites, ensure_min_samples=2) as fed,
            open_account(self.privacy, fed, chosen, searches=3) as noisy,
        ):
            self.members_ = chosen
            if noisy is None or self.privacy is None:
                self._learn_members(fed)
                self._learn_ranks(fed)
                self._learn_threshold(fed, self._of_shares())
            else:
                most = self._learn_noisy(noisy, fed, self.privacy)
                self._learn_noisy_ranks(noisy, fed, most)
                search = threshold_search(noisy, LARGEST_RANK * len(chosen), self._level())
                self._learn_threshold(fed, None, search)
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
        check_privacy(self.privacy, self.quantile, self.aggregator, self.least_rows)
        given = self.members
        known = isinstance(given, tuple | list) and all(isinstance(name, str) and name in MEMBERS for name in given)
        if not known or not given or len(set(given)) < len(given):
            raise InputError(f"members={given!r} must be a tuple of different names of {', '.join(map(repr, MEMBERS))}")
        chosen = tuple(name for name in MEMBERS if name in given)
        for name in chosen:
            self._member(name)._check_parameters()
        return chosen

    def _learn_noisy_ranks(self, noisy: NoisySums, fed: Federation, most: Vector) -> None:
        """Learn the median and 0.95 quantile of each member's training scores with noise."""
        scored = fed.apply(member_scores, **self._parameters(left_out=True))
        middle, high = noisy_ranks(noisy, scored, most, (MIDDLE, HIGH))
        self.score_quantiles_ = np.column_stack([middle, high])
        self.score_edges_ = np.column_stack([middle - spread(middle, high), middle, high])
        shares = np.array([0.0, MIDDLE, HIGH - MIDDLE, 1.0 - HIGH])
        self.score_counts_ = np.tile(self.n_samples_ * shares, (len(most), 1))

    def _count_members(self, factor: float, new: Vector) -> None:
        """Add the members' scores of new rows to earlier ones, which `factor` multiplies."""
        rows = zip(new, self.score_edges_, self.score_quantiles_[:, 1], strict=True)
        new = np.stack([tempered(counts, edges, high, 1.0 - HIGH) for counts, edges, high in rows])
        self.score_counts_ = factor * self.score_counts_ + new
        sketches = list(zip(self.score_edges_, self.score_counts_, strict=True))
        found = [[quantile_between(edges, counts, level) for level in (MIDDLE, HIGH)] for edges, counts in sketches]
        self.score_quantiles_ = np.array(found)

    def _learn_ranks(self, fed: Federation) -> None:
        """Learn the distribution of each member's training scores."""
        scored = fed.apply(member_scores, **self._parameters(left_out=True))
        rule = self._of_shares()
        middle, high = quantiles(scored, level=(MIDDLE, HIGH), aggregator=rule)
        self.score_quantiles_ = np.column_stack([middle, high])
        self.score_edges_ = placed_edges(middle, high)
        self.score_counts_ = score_counts(scored, self.score_edges_, rule)

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
