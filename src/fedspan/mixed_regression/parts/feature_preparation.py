"""Features of the models: maps that sites apply to their own rows, and scales of features and targets over all sites.

Of an installed map only its name and parameters travel. The scaling is a linear map after which rows have no mean and
unit covariance. Means and deviations come first (`moments`), then the sum of the standardised rows' Gram matrices, d (d
+ 1) / 2 numbers up per site, once. Targets: mean and deviation, two calls. Only sums are needed; with an aggregator,
single replies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Annotated, Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.arrays import Array
from fedspan.checks import first_of, one_of
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step, transform
from fedspan.federation.site.parameters import Matrix, Vector, Whole
from fedspan.linalg import whitening_map
from fedspan.mixed_regression.parts.regression_rows import target
from fedspan.pca.covariance import total_scatter
from fedspan.sums.moments import moments
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_transforms import standardize

SCALINGS = ("whiten", "standardize", "none")
_FLOOR = 0.05  # of the mean: an aggregated covariance is an estimate and must not blow up any direction
_EPS = np.finfo(np.float64).eps
NAMES = ("linear", "polynomial", "interactions")
MOST_FEATURES = 10_000
#: Higher powers spread the rows over so many magnitudes that sums of them are about the largest row alone.
MOST_DEGREE = 8

_HERE: dict[str, tuple[Any, int]] = {}  # transformers of this process, and their features: only their names travel


@transform("mixed_regression.polynomial")
def polynomial(X: Array, degree: Annotated[int, Whole(1, MOST_DEGREE)], interactions: bool) -> Array:
    """Return all products of up to `degree` columns, in scikit-learn's order and without the constant.

    With `interactions` no column is in a product twice.

    Examples
    --------
    >>> polynomial(np.array([[2.0, 3.0]]), degree=2, interactions=False)
    array([[2., 3., 4., 6., 9.]])
    """
    columns = [X[:, list(chosen)].prod(axis=1) for chosen in products(X.shape[1], degree, interactions)]
    return np.stack(columns, axis=1)


@transform("mixed_regression.whitened", affine=True)
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
    transformer, features = _HERE[name]
    if not len(X):  # scikit-learn's refuse a table without rows
        return np.empty((0, features))
    return np.asarray(transformer.transform(X), dtype=np.float64)


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
            mapped = np.ascontiguousarray(self.transform(probe))
            name = f"{self.features!r} #{blake2b(mapped.tobytes(), digest_size=8).hexdigest()}"
            _HERE[name] = self.features, mapped.shape[1]
            try:
                yield fed.apply(in_this_process, name=name)
            finally:
                _HERE.pop(name, None)


@dataclass(frozen=True)
class FeatureScaling:
    """The map ``(x - mean) matrix`` of rows; `mean` is (d,), `matrix` (d, r) or, if diagonal, (d,)."""

    mean: Vector
    matrix: Any


def feature_scaling(
    fed: Federation,
    *,
    scaling: str = "whiten",
    center: bool = True,
    names: tuple[str, ...] | None = None,
    aggregator: Aggregator | None = None,
) -> FeatureScaling:
    """Return the map; `scaling` "standardize" keeps correlations, "none" also the deviations.

    "whiten" leaves out directions without variance. With an aggregator it keeps all, and stretches none by much.
    """
    one_of("scaling", scaling, SCALINGS)
    found = moments(fed, names, aggregator)
    refuse_absurd(found.n)
    d = len(found.mean)
    mean = found.mean if center else np.zeros(d)
    if scaling == "none":
        return FeatureScaling(mean, np.ones(d))
    second = found.variance + (0.0 if center else found.mean**2)
    rounding = found.n * _EPS * (found.variance + found.n * _EPS * found.mean**2)
    scale = np.where(second <= rounding, 1.0, np.sqrt(second))
    if scaling == "standardize":
        return FeatureScaling(mean, 1.0 / scale)
    S, n, _ = total_scatter(fed.apply(standardize, mean=mean, scale=scale, double=True), aggregator=aggregator)
    matrix = whitening_map(S / n, floor=0.0 if aggregator is None else _FLOOR)
    return FeatureScaling(mean, matrix / scale[:, None] if matrix.size else 1.0 / scale)


@step("mixed_regression.target_sum", reveals="sums", moments=True)
def local_target_sum(site: Site) -> dict[str, Any]:
    """Leaves the site: the numbers of its targets that are finite and that are not, and the sum of the finite ones."""
    y = target(site, finite=False)
    finite = np.isfinite(y)
    return {"n": int(finite.sum()), "bad": int((~finite).sum()), "sum": float(y[finite].sum())}


@step("mixed_regression.target_spread", reveals="sums", moments=True)
def local_target_spread(site: Site, centre: float) -> dict[str, Any]:
    """Leaves the site: n, and the sums of its targets' differences from `centre` and of their squares."""
    y = target(site) - centre
    return {"n": len(y), "sum": float(y.sum()), "squares": float(y @ y)}


def target_moments(fed: Federation, *, aggregator: Aggregator | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of all targets, or refuse NaN and infinity, by site."""
    if aggregator is not None:
        centre = _typical(fed.ask(local_target_sum), "sum", aggregator)
        spread = _typical(fed.ask(local_target_spread, centre=centre), "squares", aggregator)
        return centre, float(np.sqrt(max(spread, 0.0)))
    first = fed.sum(local_target_sum)
    if first["bad"]:
        replies = {} if fed.policy.secure_sum else fed.ask(local_target_sum)
        where = [f"site {name!r} ({r['bad']} values)" for name, r in replies.items() if r["bad"]]
        where = where or [f"some site ({first['bad']} values)"]
        raise InputError(f"y contains NaN or infinity: {first_of(where, 5)}; fill or drop them first")
    if not first["n"] > 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    centre = first["sum"] / first["n"]
    second = fed.sum(local_target_spread, centre=centre)
    n = max(second["n"], 1)
    shift = second["sum"] / n
    refuse_absurd(centre, shift, second["squares"])
    return centre + shift, float(np.sqrt(max(second["squares"] / n - shift**2, 0.0)))


def _typical(replies: Replies, key: str, aggregator: Aggregator) -> float:
    """Return the aggregate of the sites' sums per row."""
    counts = np.maximum(replies.stack("n"), 1)
    return float(aggregator((replies.stack(key) / counts)[:, None], believed(aggregator, counts)).value[0])
