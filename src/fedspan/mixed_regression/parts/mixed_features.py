"""The feature map of a mixed regression: by name, so that it travels and is saved, or a transformer of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.mixed_regression.parts.feature_maps import forget, in_this_process, polynomial, products, register

NAMES = ("linear", "polynomial", "interactions")


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """What `features` and `degree` mean for tables of `n_columns` columns."""

    features: Any
    degree: int
    n_columns: int

    def __post_init__(self) -> None:
        if isinstance(self.features, str):
            if self.features not in NAMES:
                raise InputError(
                    f"features={self.features!r} must be one of {', '.join(map(repr, NAMES))} or a fitted transformer"
                )
            if not self.is_identity:
                next(products(self.n_columns, self.degree, self._interactions))
            return
        if isinstance(self.features, type) or not hasattr(self.features, "transform"):
            raise InputError(f"features={self.features!r} must be a name or a fitted transformer")
        try:
            check_is_fitted(self.features)
        except NotFittedError:
            raise InputError(
                f"features={self.features!r} is not fitted: fit it first (it must not be fitted to what sites hold)"
            ) from None

    @property
    def is_identity(self) -> bool:
        """Whether features are the columns themselves."""
        return isinstance(self.features, str) and self.features == "linear"

    @property
    def _interactions(self) -> bool:
        return bool(self.features == "interactions")

    def transform(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features of rows."""
        if self.is_identity:
            return np.asarray(X, dtype=np.float64)
        if isinstance(self.features, str):
            return polynomial(np.asarray(X, dtype=np.float64), self.degree, self._interactions)
        return np.asarray(self.features.transform(X), dtype=np.float64)

    @contextmanager
    def applied(self, fed: Federation) -> Iterator[Federation]:
        """Give the federation whose sites map their own rows."""
        if self.is_identity:
            yield fed
        elif isinstance(self.features, str):
            yield fed.apply(polynomial, degree=int(self.degree), interactions=self._interactions)
        else:
            name = register(self.features, self.n_columns)
            try:
                yield fed.apply(in_this_process, name=name)
            finally:
                forget(name)
