"""Feature maps that sites apply to their own rows: installed transforms, of which only names and parameters travel."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import transform

Array = NDArray[Any]

MOST_FEATURES = 10_000

# Transformers that are objects of this process. Their name travels, they themselves do not.
_HERE: dict[str, Any] = {}


@transform("mixed_regression.polynomial")
def polynomial(X: Array, degree: int, interactions: bool) -> Array:
    """Return all products of up to `degree` columns, in scikit-learn's order and without the constant.

    With `interactions` no column is in a product twice.

    Examples
    --------
    >>> polynomial(np.array([[2.0, 3.0]]), degree=2, interactions=False)
    array([[2., 3., 4., 6., 9.]])
    >>> polynomial(np.array([[2.0, 3.0]]), degree=2, interactions=True)
    array([[2., 3., 6.]])
    """
    columns = [X[:, list(chosen)].prod(axis=1) for chosen in products(X.shape[1], degree, interactions)]
    return np.stack(columns, axis=1)


@transform("mixed_regression.whitened")
def whitened(X: Array, mean: Array, matrix: Array, intercept: bool) -> Array:
    """Return ``(X - mean) matrix`` (n, r) in double precision, after a column of ones where there is an intercept.

    A diagonal matrix (d, d) may be given by its diagonal (d,): it travels with every call.
    """
    centred = np.asarray(X, dtype=np.float64) - mean
    mapped = centred * matrix if matrix.ndim == 1 else centred @ matrix
    return np.hstack([np.ones((len(mapped), 1)), mapped]) if intercept else mapped


@transform("mixed_regression.in_this_process")
def in_this_process(X: Array, name: str) -> Array:
    """Return what a transformer that was registered in this process makes of the rows."""
    if name not in _HERE:
        raise InputError(f"the transformer {name!r} is not in this process: it works on the embedded engine only")
    return np.asarray(_HERE[name].transform(X), dtype=np.float64)


def products(n_columns: int, degree: int, interactions: bool) -> Iterator[tuple[int, ...]]:
    """Yield the columns of each product of `polynomial`, or refuse if they are too many."""
    count = sum(
        comb(n_columns, power) if interactions else comb(n_columns + power - 1, power) for power in range(1, degree + 1)
    )
    if count > MOST_FEATURES:
        raise InputError(
            f"degree={degree} makes {count} features of {n_columns} columns, more than {MOST_FEATURES}: "
            "lower it, or choose columns first"
        )
    choose = combinations if interactions else combinations_with_replacement
    for power in range(1, degree + 1):
        yield from choose(range(n_columns), power)


def register(transformer: Any, n_columns: int) -> str:
    """Make a fitted transformer known to `in_this_process`, and return the name by which it travels.

    The name holds a digest of what it does to some rows, so that two of them are not mistaken for each other.
    """
    probe = np.random.default_rng(0).uniform(-1.0, 1.0, size=(3, n_columns))
    made = np.ascontiguousarray(transformer.transform(probe), dtype=np.float64)
    name = f"{transformer!r} #{blake2b(made.tobytes(), digest_size=8).hexdigest()}"
    _HERE[name] = transformer
    return name


def forget(name: str) -> None:
    """Let go of a registered transformer."""
    _HERE.pop(name, None)
