"""The members of `FedAnomalyDetector`: what each learns, from rows, from new rows, from kept sums, or with noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator, CoordinateMedian
from fedspan.anomaly.centers_detector import FedCentersDetector
from fedspan.anomaly.export.exported_detector import gateway_arrays
from fedspan.anomaly.isolation_detector import FedIsolationDetector
from fedspan.anomaly.noisy_members import noisy_columns
from fedspan.anomaly.parts.explained_detector import ExplainedDetector
from fedspan.anomaly.parts.member_scores import member_scores
from fedspan.anomaly.parts.score_grid import score_counts
from fedspan.anomaly.parts.update_sums import update_sums
from fedspan.anomaly.pca_detector import FedPCADetector
from fedspan.arrays import Vector
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import NoisySums
from fedspan.sums.row_moments import RowMoments

#: The members, in the order of their scores, and the attributes that each keeps.
MEMBERS = {
    "centers": ("mean_", "scale_", "moments_", "centers_", "center_sizes_"),
    "isolation": ("features_", "cuts_", "leaf_counts_", "subsample_"),
    "mahalanobis": (
        *("mean_", "scale_", "components_", "explained_variance_", "noise_variance_", "n_components_"),
        *("whitening_", "ridge_", "left_out_", "moments_"),
    ),
}


class JoinedMembers(ExplainedDetector):
    """Base of a detector with several members, whose attributes are its own."""

    members_: tuple[str, ...]
    mean_: Vector
    scale_: Vector | None
    moments_: Vector
    features_: NDArray[np.int64]
    cuts_: Vector
    score_edges_: Vector
    n_centers: int | None
    n_trees: int
    ridge: float
    least_rows: int
    aggregator: Aggregator | None
    privacy: GaussianMoments | None

    def _member(self, name: str) -> Any:
        """Return the estimator of a member, with what it has learned so far."""
        makers: dict[str, Callable[[], Any]] = {
            "centers": lambda: FedCentersDetector(
                n_centers=self.n_centers, least_rows=self.least_rows, aggregator=self._of_shares()
            ),
            "isolation": lambda: FedIsolationDetector(n_trees=self.n_trees, aggregator=self._of_shares()),
            "mahalanobis": lambda: FedPCADetector(ridge=self.ridge, aggregator=self.aggregator, left_out=True),
        }
        member = makers[name]()
        member.quantile, member.privacy = self.quantile, self.privacy
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
            member._learn_model(fed, finite=len(self.members_) > 1)  # the others have refused values that are not
            self._take_over("isolation", member)

    def _learn_noisy(self, noisy: NoisySums, fed: Federation, privacy: GaussianMoments) -> Vector:
        """Learn the members with noise; return the largest score (m,) of each that counts in a search."""
        d, most = self.n_features_in_, {}
        if "mahalanobis" in self.members_:
            member = self._member("mahalanobis")
            member._learn_model(fed, noisy)
            member._choose_left_out()
            self._take_over("mahalanobis", member)
            most["mahalanobis"] = member._largest_score()
        else:
            found = noisy_columns(noisy, fed, privacy.bounds(d))
            self.mean_, self.scale_, self.n_samples_ = found.mean, np.sqrt(found.variance), found.n
        scale = np.ones(d) if self.scale_ is None else self.scale_
        if "centers" in self.members_:
            member = self._member("centers")
            member._learn_noisy(noisy, fed, np.ones(d))
            self._take_over("centers", member)
            most["centers"] = member._largest_score(float(d))
        if "isolation" in self.members_:
            member = self._member("isolation")
            member._learn_noisy(noisy, fed, self.n_samples_, self.mean_, scale)
            self._take_over("isolation", member)
            most["isolation"] = member._largest_score()
        return np.array([most[name] for name in self.members_])

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
        self._update_members(
            lambda member: member._learn_kept(rows, found, factor, fed),
            lambda centers: centers._take_sums(found, factor, self.mean_, self.scale_),
        )
        self._count_members(factor, found["member_counts"])

    def _learn_on(self, fed: Federation, factor: float) -> None:
        self._update_members(
            lambda member: member._learn_on(fed, factor),
            lambda centers: centers._move_centers(fed, factor, self.mean_, self.scale_),
        )
        scored = fed.apply(member_scores, **self._parameters(left_out=True))
        self._count_members(factor, score_counts(scored, self.score_edges_, self._of_shares()))

    def _update_members(self, learn: Callable[[Any], None], move: Callable[[Any], None]) -> None:
        """Let each member `learn`; the centres alone `move` where the covariance has learned their units."""
        before = {name: self._member(name) for name in self.members_}
        for name in ("mahalanobis", "centers", "isolation"):
            member = before.get(name)
            if member is None:
                continue
            if name == "centers" and "mahalanobis" in before:
                move(member)
                member.moments_ = self.moments_
            else:
                learn(member)
            self._take_over(name, member)

    def _in_one_call(self) -> bool:
        return self.aggregator is None

    def _new_sums(self, fed: Federation) -> tuple[RowMoments, dict[str, Any]]:
        products = "mahalanobis" in self.members_
        return update_sums(fed, model=gateway_arrays(self), names=self._names(), products=products)

    @abstractmethod
    def _count_members(self, factor: float, new: Vector) -> None:
        """Add the members' scores of new rows to earlier ones, which `factor` multiplies."""

    def _parameters(self, left_out: bool = False) -> dict[str, Any]:
        """Return the parameters of `member_scores`, for new rows or training rows left out."""
        found: dict[str, Any] = {}
        for name in self.members_:
            member = self._member(name)
            found |= (member._training_transform() if left_out else member._score_transform())[1]
        return found
