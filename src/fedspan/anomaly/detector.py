"""What all detectors share: an anomaly score of each row, and a threshold that is a quantile of the training scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.base import FedEstimator
from fedspan.checks import real_number
from fedspan.federation import Federation
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_transforms import scores_as_verdicts, shifted_and_scaled

Array = NDArray[Any]
Vector = NDArray[np.float64]

#: Training scores that are kept with the share of the rows up to each: a few hundred bytes, for small devices.
_LEVELS = 28


class FedDetector(OutlierMixin, FedEstimator, ABC):
    """Base of the detectors: scikit-learn's outlier API.

    A subclass has a parameter ``quantile``, learns its model in ``fit``, says in `_score_transform` how rows are scored, and
    ends its ``fit`` with ``self._learn_threshold(fed)``.

    All methods that take rows also take a federation, and return the one whose sites see their own results in one
    column: no row's result leaves its site.

    Attributes
    ----------
    offset_ : float
        Minus the threshold: rows whose ``score_samples`` is below it are outliers.
    score_levels_ : array (m, 2)
        What the search for the threshold told of the training scores: at most 28 anomaly scores, rising, and the share
        of the training rows up to each. For pictures, and so in single precision.
    """

    offset_: float
    score_levels_: NDArray[np.float32]
    quantile: float
    #: How far scores of one row may differ by rounding, relatively.
    _rounding = 1e-9

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> Self:
        """Learn from a table (with ``sites``) or a federation."""

    @abstractmethod
    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform from rows (n, d) to anomaly scores (n, 1), higher for more anomalous, and its parameters."""

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform that scores training rows for the threshold: the same, unless a subclass knows better."""
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
        """Fit to `X` and return what `predict` says of its rows."""
        return self.fit(X, y, sites=sites).predict(X)

    def _check_quantile(self) -> None:
        real_number("quantile", self.quantile, above=0, most=1, why=", such as 0.95")

    def _learn_threshold(self, fed: Federation, aggregator: Aggregator | None = None) -> None:
        """Set ``offset_`` from the scores of the sites' own rows, which do not leave them (see `quantiles`)."""
        transform, parameters = self._training_transform()
        told: list[Vector] = []
        threshold = float(
            quantiles(
                fed.apply(transform, **parameters),
                level=self.quantile,
                aggregator=aggregator,
                watch=lambda edges, shares: told.append(np.column_stack([edges[0], shares[0]])),
            )[0]
        )
        self.score_levels_ = _levels(np.concatenate(told[:2]))  # all scores, then those near the threshold
        # It often is the score of many equal rows: these stay normal in whatever company they are scored, although the
        # last digits of a product of matrices depend on it.
        self.offset_ = -(threshold + self._rounding * abs(threshold))

    def _scored(self, fed: Federation) -> Federation:
        transform, parameters = self._score_transform()
        return fed.apply(transform, columns=self._names(), **parameters)

    def _anomaly(self, X: Any) -> Vector:
        """Return the anomaly score of each row (n,) of a table."""
        transform, parameters = self._score_transform()
        return cast(Vector, transform(self._validated(X), **parameters)[:, 0])


def _levels(told: Vector) -> NDArray[np.float32]:
    """Return a few scores and shares (m, 2) in rising order, without those in the middle of scores that nobody has."""
    told = told[np.abs(told[:, 0]) < np.finfo(np.float32).max]
    told = told[np.argsort(told[:, 0], kind="stable")]
    told[:, 1] = np.maximum.accumulate(told[:, 1])  # sites may have come or gone between two rounds
    same = np.diff(told[:, 1]) == 0
    idle = np.append(True, same) & np.append(same, True)
    told = told[~idle]
    kept = np.unique(np.linspace(0, len(told) - 1, min(_LEVELS, len(told))).astype(int))
    return np.asarray(told[kept], dtype=np.float32)


def usual_dimension(n_features: int) -> int:
    """Return the dimension of a subspace that nobody asked for: half of the columns, at most 10."""
    return max(1, min(10, n_features // 2))
