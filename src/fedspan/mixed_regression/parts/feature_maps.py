"""Feature maps that sites apply to their own rows: installed transforms, of which only names and parameters travel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from fedspan.checks import one_of
from fedspan.errors import InputError
from fedspan.federation import Federation, transform
from fedspan.federation.site.parameters import Matrix, Vector, Whole

Array = NDArray[Any]

NAMES = ("linear", "polynomial", "interactions")
MOST_FEATURES = 10_000

_HERE: dict[str, Any] = {}  # transformers of this process: only their names travel


@transform("mixed_regression.polynomial")
def polynomial(X: Array, degree: Annotated[int, Whole(1, MOST_FEATURES)], interactions: bool) -> Array:
    """Return all products of up to `degree` columns, in scikit-learn's order and without the constant.

    With `interactions` no column is in a product twice.

    Examples
    --------
    >>> polynomial(np.array([[2.0, 3.0]]), degree=2, interactions=False)
    array([[2., 3., 4., 6., 9.]])
    """
    columns = [X[:, list(chosen)].prod(axis=1) for chosen in products(X.shape[1], degree, interactions)]
    return np.stack(columns, axis=1)


@transform("mixed_regression.whitened")
def whitened(X: Array, mean: Vector, matrix: Matrix, intercept: bool) -> Array:
    """Return ``(X - mean) matrix`` (n, r) in double precision, after a column of ones if there is an `intercept`.

    A diagonal matrix (d, d) may be given by its diagonal (1, d), because it travels with every call.
    """
    centred = np.asarray(X, dtype=np.float64) - mean
    mapped = centred * matrix if len(matrix) == 1 else centred @ matrix
    return np.hstack([np.ones((len(mapped), 1)), mapped]) if intercept else mapped


@transform("mixed_regression.in_this_process")
def in_this_process(X: Array, name: str) -> Array:
    """Return the features that a transformer of this process makes of the rows."""
    if name not in _HERE:
        raise InputError(f"the transformer {name!r} is not in this process: it works on the embedded engine only")
    return np.asarray(_HERE[name].transform(X), dtype=np.float64)


def products(n_columns: int, degree: int, interactions: bool) -> Iterator[tuple[int, ...]]:
    """Yield the columns of each product of `polynomial`, or refuse too many of them."""
    powers = range(1, degree + 1)
    count = sum(comb(n_columns, power) if interactions else comb(n_columns + power - 1, power) for power in powers)
    if count > MOST_FEATURES:
        raise InputError(
            f"degree={degree} makes {count} features of {n_columns} columns, more than {MOST_FEATURES}: "
            "lower it, or choose columns first"
        )
    choose = combinations if interactions else combinations_with_replacement
    for power in powers:
        yield from choose(range(n_columns), power)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """The map of `features` (a name or a fitted transformer) and `degree` for tables of `n_columns` columns."""

    features: Any
    degree: int
    n_columns: int

    def __post_init__(self) -> None:
        if isinstance(self.features, str):
            one_of("features", self.features, NAMES)
            if not self.is_identity:
                next(products(self.n_columns, self.degree, self._interactions))
            return
        if isinstance(self.features, type) or not hasattr(self.features, "transform"):
            raise InputError(f"features={self.features!r} must be a name or a fitted transformer")
        try:
            check_is_fitted(self.features)
        except NotFittedError:
            raise InputError(
                f"features={self.features!r} is not fitted: fit it first (it must not be fitted to the sites' rows)"
            ) from None

    @property
    def is_identity(self) -> bool:
        """Whether features are the columns themselves."""
        return isinstance(self.features, str) and self.features == "linear"

    @property
    def _interactions(self) -> bool:
        return bool(self.features == "interactions")

    def transform(self, X: Array) -> Matrix:
        """Return the features of rows."""
        if isinstance(self.features, str) and not self.is_identity:
            return polynomial(np.asarray(X, dtype=np.float64), self.degree, self._interactions)
        return np.asarray(X if self.is_identity else self.features.transform(X), dtype=np.float64)

    @contextmanager
    def applied(self, fed: Federation) -> Iterator[Federation]:
        """Give the federation whose sites map their own rows."""
        if self.is_identity:
            yield fed
        elif isinstance(self.features, str):
            yield fed.apply(polynomial, degree=int(self.degree), interactions=self._interactions)
        else:  # a digest of some mapped rows distinguishes transformers that print alike
            probe = np.random.default_rng(0).uniform(-1.0, 1.0, size=(3, self.n_columns))
            digest = blake2b(np.ascontiguousarray(self.transform(probe)).tobytes(), digest_size=8).hexdigest()
            name = f"{self.features!r} #{digest}"
            _HERE[name] = self.features
            try:
                yield fed.apply(in_this_process, name=name)
            finally:
                _HERE.pop(name, None)
