"""What a fitted PCA detector does: score many rows, score one of a stream, say which features are to blame."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedspan.anomaly import scores as forms
from fedspan.anomaly.detector import FedDetector
from fedspan.anomaly.thresholds import left_out_subspace, left_out_whitened, leverages
from fedspan.errors import InputError

Array = NDArray[Any]
Vector = NDArray[np.float64]
Form = tuple[Callable[..., Array], Callable[..., float], Callable[..., Vector]]

_SUBSPACE: Form = (forms.subspace_score, forms.one_subspace_score, forms.subspace_shares)
_WHITENED: Form = (forms.whitened_score, forms.one_whitened_score, forms.whitened_shares)


class PCAScoring(FedDetector):
    """Base of `FedPCADetector`: a form of score, and the arrays that it needs."""

    score: str
    center: bool
    n_samples_: int
    left_out_: bool
    mean_: Vector
    scale_: Vector | None
    components_: Vector
    explained_variance_: Vector
    noise_variance_: float
    ridge_: float
    whitening_: Vector | None

    def score_one(self, x: Any) -> float:
        """Return what ``score_samples`` says of one row (d,), without its checks: for streams."""
        row = self._row(x)
        (_, of_one_row, _), parameters = self._form()
        with np.errstate(over="ignore", invalid="ignore"):
            score = of_one_row(row, **parameters)
        if math.isnan(score):
            _refuse_bad_values(row)
            score = math.inf
        return -score

    def explain(self, X: Any) -> Vector:
        """Return each feature's share of the anomaly score: for one row (d,), or for every row (n, d).

        The score is the squared length of ``W z`` with a symmetric W (``I - U U'`` for the residual, the symmetric root
        of the inverse covariance for Mahalanobis distances), and a feature's share is its part of that length: none is
        negative, and they sum to 1. A row with the score 0 has shares 0.
        """
        check_is_fitted(self)
        (_, _, shares), parameters = self._form()
        if np.ndim(X) != 1:
            return shares(self._validated(X), **parameters)
        row = self._row(X)
        _refuse_bad_values(row)
        return cast(Vector, shares(row[None], **parameters)[0])

    def top_features(self, x: Any, count: int = 5) -> list[tuple[str, float]]:
        """Return the features with the largest shares of one row's score, the largest first, as (name, share)."""
        shares = self.explain(np.ravel(x))
        names = self._names() or tuple(f"feature {j}" for j in range(len(shares)))
        return [(names[j], float(shares[j])) for j in np.argsort(-shares, kind="stable")[:count]]

    def _score_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        (transform, _, _), parameters = self._form()
        return transform, parameters

    def _free(self, n: int) -> int:
        """Return the degrees of freedom of the covariance of n rows."""
        return max(1, n - 1 if self.center else n)

    def _training_transform(self) -> tuple[Callable[..., Array], dict[str, Any]]:
        """Return the transform for the threshold: where rows are few, each is scored as if it had been left out."""
        (transform, _, _), parameters = self._form()
        if not self.left_out_:
            return transform, parameters
        n = self.n_samples_
        parameters |= {"free": self._free(n), "shift": n / (n - 1) if self.center else 1.0}
        leverage = leverages(self.explained_variance_, self.noise_variance_, parameters["free"])
        if self.whitening_ is None:
            return left_out_subspace, {**parameters, "leverage": leverage}
        within: dict[str, Any] = {"components": None, "inside": None, "leverage": None}
        if self.score == "combined":
            inside = 1.0 / (self.explained_variance_ + self.ridge_)
            within = {"components": self.components_, "inside": inside, "leverage": leverage}
        return left_out_whitened, {**parameters, **within}

    def _form(self) -> tuple[Form, dict[str, Any]]:
        """Return the functions that score many rows, score one and explain, and the parameters of all three."""
        standard = {"mean": self.mean_, "scale": self.scale_}
        if self.whitening_ is not None:
            return _WHITENED, {**standard, "root": self.whitening_}
        inside, outside = None, 1.0
        if self.score != "residual":
            outside = 1.0 / (self.noise_variance_ + self.ridge_)
        if self.score == "mahalanobis":
            inside = 1.0 / (self.explained_variance_ + self.ridge_)
        return _SUBSPACE, {**standard, "components": self.components_, "inside": inside, "outside": outside}

    def _anomaly(self, X: Any) -> Vector:
        # Values that are not finite have scores that are not: no need to look through all values beforehand.
        transform, parameters = self._score_transform()
        scores = transform(self._validated(X, ensure_all_finite=False), **parameters)[:, 0]
        if not np.isfinite(scores).all():
            self._validated(X)
        return cast(Vector, scores)

    def _row(self, x: Any) -> Vector:
        row: Vector = np.asarray(x, dtype=np.float64)
        if row.shape != self.mean_.shape:
            raise InputError(f"x has the shape {row.shape}, and must be one row of {len(self.mean_)} numbers")
        return row


def _refuse_bad_values(x: Vector) -> None:
    if not np.isfinite(x).all():
        raise InputError("x holds NaN or infinity: fill or drop them first")
