"""Base of the detectors: an anomaly score of each row, and a threshold that is a quantile of the training scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.arrays import Array, Vector
from fedspan.base import FedEstimator
from fedspan.checks import real_number
from fedspan.federation import Federation
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_transforms import scores_as_verdicts, shifted_and_scaled

#: Training scores that are kept with the share of the rows up to each: a few hundred bytes, for small devices.
_LEVELS = 28


class FedDetector(OutlierMixin, FedEstimator, ABC):
    """Base of the detectors: scikit-learn's outlier API.

    A subclass has a parameter ``quantile``, learns its model in ``fit``, scores rows by `_score_transform`, ends its
    ``fit`` with ``self._learn_threshold(fed)``. All methods that take rows also take a federation. They return the one
    whose sites see their own results in one column: no row's result leaves its site.

    Attributes
    ----------
    offset_ : float
        Minus the threshold: rows whose ``score_samples`` is below it are outliers.
    score_levels_ : array (m, 2)
        From the search for the threshold: at most 28 anomaly scores, rising, and the share of the training rows up to
        each. For pictures, and so in single precision.
    """

    offset_: float
    score_levels_: NDArray[np.float32]
    quantile: float
    #: Relative rounding error of a row's score.
    _rounding = 1e-9

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn from a table (with ``sites``) or a federation."""

    @abstractmethod
    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform from rows (n, d) to anomaly scores (n, 1), higher is more anomalous; its parameters."""

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform that scores training rows for the threshold; by default the same."""
        return self._score_transform()

    def score_samples(self, X: Any) -> Any:
        """Return minus the anomaly score of each row (n,): higher is more normal."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            return self._scored(X).apply(shifted_and_scaled, shift=0.0, scale=-1.0)
        return -self._anomaly(X)

    def decision_function(self, X: Any) -> Any:
        """Return ``score_samples(X) - offset_`` (n,): negative for outliers."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            return self._scored(X).apply(shifted_and_scaled, shift=-self.offset_, scale=-1.0)
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Any:
        """Return for each row (n,) +1 where it is normal, -1 where its anomaly score is above the threshold."""
        check_is_fitted(self)
        if isinstance(X, Federation):
            return self._scored(X).apply(scores_as_verdicts, threshold=-self.offset_)
        return np.where(self._anomaly(X) > -self.offset_, -1, 1)

    def fit_predict(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit to `X` and return `predict` of its rows."""
        return self.fit(X, y, sites=sites).predict(X)

    def _check_quantile(self) -> None:
        real_number("quantile", self.quantile, above=0, most=1, why=", such as 0.95")

    def _learn_threshold(
        self, fed: Federation, aggregator: Aggregator | None = None, search: Callable[..., Vector] | None = None
    ) -> None:
        """Set ``offset_`` from the scores of the sites' own rows, which do not leave them (see `quantiles`).

        `search` finds the quantile of another federation's scores in another way.
        """
        for name in (
            "site_offsets_",
            "anchor_",
            "score_spread_",
            "sketch_edges_",
            "sketch_counts_",
            "counted_batches_",
        ):  # of an earlier fit
            self.__dict__.pop(name, None)
        searched: list[tuple[Vector, Vector]] = []
        search = search or partial(quantiles, level=self._level(), aggregator=aggregator)
        threshold = float(
            search(self._training_scores(fed), watch=lambda edges, shares: searched.append((edges[0], shares[0])))[0]
        )
        # The first round of the search sees all scores, the second those near the threshold.
        self.score_levels_ = few_levels(*map(np.concatenate, zip(*searched[:2], strict=True)))
        # The threshold often is the score of many equal rows. These must stay normal, although the last digits of a
        # product of matrices depend on the other rows.
        self.offset_ = -(threshold + self._rounding * abs(threshold))

    def _level(self) -> float:
        """Return the level of the threshold among the training scores."""
        return float(self.quantile)

    def _scored(self, fed: Federation) -> Federation:
        transform, parameters = self._score_transform()
        return fed.apply(transform, columns=self._names(), **parameters)

    def _training_scores(self, fed: Federation) -> Federation:
        """Return the federation whose sites see the scores of their training rows, for the threshold."""
        transform, parameters = self._training_transform()
        return fed.apply(transform, **parameters)

    def _anomaly(self, X: Any) -> Vector:
        """Return the anomaly score of each row (n,) of a table."""
        return self._scores(self._validated(X))

    def _scores(self, X: Array) -> Vector:
        """Return the anomaly score of each validated row (n,)."""
        transform, parameters = self._score_transform()
        return cast(Vector, transform(X, **parameters)[:, 0])


def few_levels(scores: Vector, shares: Vector) -> NDArray[np.float32]:
    """Return a few scores and shares (m, 2) in rising order, without those in the middle of a gap between scores."""
    order = np.argsort(scores, kind="stable")
    order = order[np.abs(scores[order]) < np.finfo(np.float32).max]
    scores, shares = scores[order], np.maximum.accumulate(shares[order])  # sites may come and go between two rounds
    same = np.diff(shares) == 0
    gap = np.append(True, same) & np.append(same, True)
    scores, shares = scores[~gap], shares[~gap]
    kept = np.unique(np.linspace(0, len(scores) - 1, min(_LEVELS, len(scores))).astype(int))
    return np.column_stack([scores[kept], shares[kept]]).astype(np.float32)


def usual_dimension(n_features: int) -> int:
    """Return the default dimension of a subspace: half of the columns, at most 10."""
    return max(1, min(10, n_features // 2))
