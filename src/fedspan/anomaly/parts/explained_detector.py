"""Base of the detectors whose scores can be explained: each feature has a share of a row's score."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly.detector import FedDetector
from fedspan.errors import InputError

Vector = NDArray[np.float64]


class ExplainedDetector(FedDetector):
    """Base of the detectors that score and explain single rows."""

    n_features_in_: int
    n_samples_: int

    @abstractmethod
    def _shares(self, X: NDArray[Any]) -> Vector:
        """Return the share of every feature in the score of every row (n, d); they sum to 1, or are all 0."""

    def score_one(self, x: Any) -> float:
        """Return ``score_samples`` of one row (d,), without its checks: for streams."""
        row = self._row(x)
        with np.errstate(over="ignore", invalid="ignore"):
            score = self._one_score(row)
        if not math.isfinite(score):
            self._row(x, finite=True)
            score = math.inf
        return -score

    def explain(self, X: Any) -> Vector:
        """Return each feature's share of the anomaly score: for one row (d,), or for every row (n, d).

        Shares are not negative and sum to 1; a row with the score 0 has shares 0.
        """
        check_is_fitted(self)
        if np.ndim(X) != 1:
            return self._shares(self._validated(X))
        return cast(Vector, self._shares(self._row(X, finite=True)[None])[0])

    def top_features(self, x: Any, count: int = 5) -> list[tuple[str, float]]:
        """Return the features with the largest shares of one row's score, the largest first, as (name, share)."""
        shares = self.explain(np.ravel(x))
        names = self._names() or tuple(f"feature {j}" for j in range(len(shares)))
        return [(names[j], float(shares[j])) for j in np.argsort(-shares, kind="stable")[:count]]

    def _level_of_new_rows(self) -> float:
        """Return the level of scores of n rows left out above which a share ``1 - quantile`` of new rows is expected.

        A new score is equally likely in each of the n + 1 gaps between n others.
        """
        n = max(self.n_samples_, 1)
        return min(1.0, float(self.quantile) * (n + 1) / n)

    def _one_score(self, row: Vector) -> float:
        """Return the anomaly score of one row (d,)."""
        return float(self._scores(row[None])[0])

    def _anomaly(self, X: Any) -> Vector:
        return self._scores(self._validated(X))

    def _row(self, x: Any, finite: bool = False) -> Vector:
        row: Vector = np.asarray(x, dtype=np.float64)
        if row.shape != (self.n_features_in_,):
            raise InputError(f"x has the shape {row.shape}, and must be one row of {self.n_features_in_} numbers")
        if finite and not np.isfinite(row).all():
            raise InputError("x holds NaN or infinity: fill or drop them first")
        return row
