"""Transforms that sites apply to their own rows on behalf of fitted models."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import transform
from fedspan.federation.site.parameters import Matrix, Vector


def _shift_and_scale(mean: Vector | None, scale: Vector | None, double: bool = False) -> tuple[Any, Any]:
    return mean, scale


@transform("sums.standardize", affine=True, diagonal=_shift_and_scale, elementwise=True)
def standardize(X: Array, mean: Vector | None, scale: Vector | None, double: bool = False) -> Array:
    """Return ``(X - mean) / scale``, without what is ``None``. float32 stays float32 unless `double`.

    A sparse matrix stays one, and has no mean subtracted.
    """
    for fitted in (mean, scale):
        if fitted is not None:
            same_columns(X, len(fitted))
    if hasattr(X, "tocsr"):
        scaled: Array = _scaled(X, mean, scale)
        return scaled
    result = X if mean is None else X - mean  # in double precision, where a large mean keeps its digits
    result = result if scale is None else result / scale
    kind = np.float32 if X.dtype == np.float32 and not double else np.float64
    return result.astype(kind, copy=result is X)


def _scaled(X: Any, mean: Vector | None, scale: Vector | None) -> Any:
    """Return a sparse matrix by rows with each column divided by its scale."""
    if mean is not None:
        raise InputError("X is sparse, and subtracting a mean would make it dense: use with_mean=False, or X.toarray()")
    found = X.copy()
    if scale is not None:
        found.data = (found.data / scale.take(found.indices)).astype(X.dtype)
    return found


@transform("sums.project", affine=True)
def project(X: Array, components: Matrix) -> Array:
    """Return the coordinates of rows along `components` (k, d)."""
    projected: Array = X @ components.T.astype(np.float32 if X.dtype == np.float32 else np.float64)
    return projected


@transform("sums.shifted_and_scaled", affine=True, elementwise=True)
def shifted_and_scaled(X: Array, shift: float, scale: float) -> Array:
    """Return ``scale * (X - shift)``."""
    return np.asarray(scale * (X - shift))


@transform("sums.scores_as_verdicts", elementwise=True)
def scores_as_verdicts(X: Array, threshold: float) -> Array:
    """Return -1 where an anomaly score is above `threshold`, +1 elsewhere."""
    return np.where(threshold < X, -1, 1)


def same_columns(X: Array, count: int) -> None:
    """Refuse rows with another number of columns than the transform was fitted on: numpy would stretch one column."""
    if np.ndim(X) != 2 or X.shape[1] != count:
        found = f"{X.shape[1]} columns" if np.ndim(X) == 2 else f"the shape {np.shape(X)}"
        raise InputError(f"rows with {found} were passed to a transform that was fitted on {count} columns")
