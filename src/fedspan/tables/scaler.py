"""FedStandardScaler: scale every column to zero mean and unit variance, from sums alone."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.base import Learner, LearnsOn, WeightedTransformer, check_aggregator, secure
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.sums.moments import Moments, deviations, learned, moments, moments_of, row_moments
from fedspan.sums.noisy_moments import noisy_moments
from fedspan.sums.one_round import OneRound
from fedspan.sums.row_moments import RowMoments
from fedspan.sums.row_transforms import standardize


@dataclass(eq=False, repr=False)
class FedStandardScaler(OneToOneFeatureMixin, WeightedTransformer, LearnsOn):
    """Standardise columns by the exact mean and deviation of all rows of all sites.

    Leaves a site: number and weight of its rows, and of each column mean, sum of squares about it and number of values
    that are not finite. This is one call of O(d) numbers. With secure sums three calls (columns, sums, centred sums).

    Parameters
    ----------
    with_mean, with_std : bool, default=True
        Whether to subtract the mean, and to divide by the deviation. A sparse matrix stays one with
        ``with_mean=False``.
    aggregator : Aggregator, optional
        Combines the sites' own means, instead of exact sums, where some sites may be malicious. With
        ``fedspan.aggregation.CoordinateMedian()`` a minority moves a mean or a deviation by no more than the honest
        sites differ. Single replies are then needed, and the result is exact only where the sites' rows are alike.
    privacy : fedspan.privacy.GaussianMoments, optional
        Differential privacy: one sum over rows within public bounds, with noise (see ``docs/privacy.md``). Values that
        are not finite are then not reported, and columns whose variance the noise hides have ``scale_`` 1.
    random_state, verbose : int, optional
        Seed of the run, which draws nothing here; 1 shows a progress bar when the fit takes longer than two seconds.

    Attributes
    ----------
    mean_, var_, scale_ : array (d,)
        As in scikit-learn: columns without variance have ``scale_`` 1, and without `with_std` the last two are None.
    n_samples_seen_ : int or float
        The number of rows, or the sum of their weights. With noise under `privacy`.
    privacy_ : PrivacySpent or None
        What the fit has spent of the sites' privacy, with the accountant's figure.
    sites_, run_ : tuple of str, RunRecord

    Examples
    --------
    >>> scaler = FedStandardScaler().fit([[1.0, 5.0], [3.0, 5.0]], sites=["a", "b"])
    >>> scaler.mean_, scaler.scale_
    (array([2., 5.]), array([1., 1.]))
    """

    takes_sparse = True

    _: KW_ONLY
    with_mean: bool = True
    with_std: bool = True
    aggregator: Aggregator | None = None
    privacy: GaussianMoments | None = None

    def fit(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:
        """Learn means and deviations from a table (with ``sites``) or a federation.

        A row counts as often as its ``sample_weight`` states; the sites of a federation have their own weights.
        """
        check_aggregator(self.aggregator)
        check_moments(self.privacy, self.aggregator)
        self._refuse_dense(X)
        exact = self.privacy is None and self.aggregator is None
        one = OneRound() if exact and not secure(X) else None
        with self._fitting(X, y, sites, sample_weight=sample_weight, agree=one) as fed:
            if one is not None and one.found is not None:
                found = moments_of(learned(one.found, fed, self._names()))
            elif self.privacy is None:
                found = moments(fed, self._names(), self.aggregator)
            else:
                found = noisy_moments(fed, privacy=self.privacy, n_columns=self.n_features_in_)
        self._keep(found)
        return self

    def _keep(self, found: Moments) -> None:
        self.n_samples_seen_, self.mean_ = found.weight, found.mean
        self.var_ = found.variance if self.with_std else None
        self.scale_ = deviations(found) if self.with_std else None

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sites: Any = None,
        sample_weight: Any = None,
        decay: float = 1.0,
        half_life: float | str | timedelta | None = None,
        batch: str | None = None,
        at: str | float | datetime | None = None,
    ) -> Self:
        """Keep learning from new rows alone, a table (with ``sites``) or a federation; the first call is a fit.

        Parameters
        ----------
        sample_weight : array (n,), optional
            Weights of the rows of a table. A federation's sites have their own.
        decay, half_life, batch, at
            As of `FedPCA.partial_fit`.
        """
        if sample_weight is not None:
            fitted = hasattr(self, "n_samples_seen_")
            X = self._as_federation(X, None, sites, sample_weight=sample_weight, reset=not fitted)
            sites = None
        return super().partial_fit(X, y, sites=sites, decay=decay, half_life=half_life, batch=batch, at=at)

    def _learner(self, X: Any) -> tuple[bool, Learner | None]:
        if self.aggregator is not None or self.privacy is not None:
            raise InputError(
                "partial_fit adds exact sums up, and takes no aggregator=... or privacy=...: collect rows, then fit"
            )
        first = not hasattr(self, "n_samples_seen_")
        if not first and self.with_std and self.var_ is None:
            raise InputError(
                "this scaler was fitted with with_std=False, and has no variances to learn on from: call fit"
            )
        return first, None if first else self._learn_on

    def _learn_on(self, fed: Federation, factor: float) -> None:
        """Learn from new rows; `factor` multiplies the weight of earlier rows."""
        new, _ = row_moments(fed, self._names())
        n, weight = round(self.n_samples_seen_), float(self.n_samples_seen_)
        nothing = np.zeros_like(self.mean_)
        old = RowMoments(n, weight, self.mean_, nothing, nothing if self.var_ is None else weight * self.var_)
        self._keep(moments_of(RowMoments.merged([old.scaled(factor), new])))

    def _change_units(self, factor: NDArray[np.float64], shift: NDArray[np.float64]) -> None:
        super()._change_units(factor, shift)
        if self.var_ is None:
            self.scale_ = None
        else:
            self.var_ = factor**2 * self.var_

    def transform(self, X: Any, copy: bool | None = None) -> Any:
        """Standardise a table; for a federation, return one whose sites do so locally.

        `copy` is scikit-learn's, and changes nothing: the result never shares memory with X.
        """
        check_is_fitted(self)
        if isinstance(X, Federation):
            return X.apply(standardize, columns=self._names(), **self._transform_parameters())
        return standardize(self._validated(X), **self._transform_parameters())

    def inverse_transform(self, X: Any, copy: bool | None = None) -> NDArray[Any]:
        """Undo `transform`. The result never shares memory with X, whatever `copy` is."""
        check_is_fitted(self)
        X = self._validated(X)
        self._refuse_dense(X)
        if hasattr(X, "tocsr"):
            return standardize(X, None, None if self.scale_ is None else 1.0 / self.scale_)
        scaled = X if self.scale_ is None else X * self.scale_
        shifted = scaled + self.mean_ if self.with_mean else scaled
        return cast(NDArray[Any], shifted.astype(X.dtype))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.with_mean
        return tags

    def _refuse_dense(self, X: Any) -> None:
        if hasattr(X, "tocsr") and self.with_mean:
            raise InputError(
                "Cannot center sparse matrices: pass `with_mean=False` instead, or make X dense with X.toarray()"
            )

    def _check_weights(self) -> None:
        self._refuse_weights_with(privacy=self.privacy, aggregator=self.aggregator)

    def _totals_will_do(self) -> bool:
        return True

    def _transform_parameters(self) -> dict[str, Any]:
        return {"mean": self.mean_ if self.with_mean else None, "scale": self.scale_}
