"""Distance to the nearest centres: the score of a row is its mean distance to the two nearest centres of k-means."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedspan.anomaly.scores import standardized
from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import transform
from fedspan.federation.site.parameters import MOST, Matrix, Vector, Whole

#: A number of rows, or 0 where rows are not left out.
Trained = Annotated[int, Whole(0, MOST)]

#: A row counts the distances to this many centres.
NEAREST = 2
_BLOCK_BYTES = 2**21
#: The move of a centre when a row is left out, in moves of the mean: those of other rows' labels are in it.
_FOLLOWS = 1.5
#: A part of the variance that is rounding.
_CONSTANT = 1e-9
#: In place of the infinite factor of a centre that would not exist without the row.
NO_CENTRE = 1e200


@transform("anomaly.centre_score")
def centre_score(
    X: Array, mean: Vector, scale: Vector | None, centers: Matrix, growth: Vector, trained: Trained = 0
) -> Matrix:
    """Return the mean distance (n, 1) of ``(x - mean) / scale`` to its two nearest `centers` (k, d).

    The distance to the nearest one is multiplied by its entry of `growth` (k,): 1 for new rows (`left_out_growth`).
    Rows that are among the `trained` ones are left out of the deviations of the columns, too: 0 for new rows.
    """
    if centers.shape[1:] != mean.shape or growth.shape != centers.shape[:1] or not len(centers):
        raise InputError("mean, centers and growth have shapes that do not fit")
    lengths, most = np.vecdot(centers, centers), min(NEAREST, len(centers))
    found = np.empty((len(X), 1))
    size = max(1, _BLOCK_BYTES // (8 * max(centers.shape)))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(X), size):
            Z = standardized(X[start : start + size], mean, scale)
            apart = Z @ (-2.0 * centers.T) + lengths
            units = np.ones(len(mean)) if scale is None or trained < 2 else left_out_units(Z, scale, trained)
            found[start : start + size, 0] = _nearest(Z, units, centers, growth, apart, most).mean(axis=1)
    found[np.isnan(found)] = np.inf
    return found


def _nearest(Z: Matrix, units: Array, centers: Matrix, growth: Vector, apart: Matrix, most: int) -> Matrix:
    """Return the distances (n, most) to the nearest centres, the nearest of all one grown; `apart` changes."""
    # One more than needed: growth and units may move the nearest centre back. Differences do not cancel.
    some = min(most + 1, len(centers))
    near, rows = np.empty((len(Z), some), dtype=np.intp), np.arange(len(Z))
    for i in range(some):  # faster than a partition
        near[:, i] = apart.argmin(axis=1)
        apart[rows, near[:, i]] = np.inf
    D = np.sqrt(np.square((Z[:, None, :] - centers[near]) * units[..., None, :]).sum(axis=2))
    own = D.argmin(axis=1)
    grown = growth[near[rows, own]]
    D[rows, own] = np.where(grown < NO_CENTRE, grown * D[rows, own], NO_CENTRE)  # the row is its own centre: D is 0
    D.sort(axis=1)
    return np.asarray(D[:, :most])


def left_out_units(Z: Matrix, scale: Vector, trained: int) -> Matrix:
    """Return by what differences of standardised rows Z (n, d) grow if each is left out of the columns' deviations.

    With ``c = n / (n - 1)`` the variance is ``(1 - c z^2 / n) c`` times what it was. It counts as no larger than that:
    a threshold at the score of many equal rows must not be below it. A column that is constant without the row has the
    deviation 1.

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [3.0], [10.0]])
    >>> bool(np.allclose(left_out_units((X - X.mean()) / X.std(), X.std(axis=0), 4)[3], X.std() / X[:3].std()))
    True
    """
    c = trained / (trained - 1.0)
    left = np.minimum((1.0 - c * np.square(Z) / trained) * c, 1.0)
    return np.where(left > _CONSTANT, 1.0 / np.sqrt(np.maximum(left, _CONSTANT)), scale)


def centre_shares(X: Array, mean: Vector, scale: Vector | None, centers: Matrix) -> Matrix:
    """Return the features' shares (n, d) of `centre_score`: a distance is the sum of its squares over itself."""
    Z = np.clip(standardized(X, mean, scale), -1e150, 1e150)
    most = min(NEAREST, len(centers))
    shares = np.zeros(Z.shape)
    apart = Z @ (-2.0 * centers.T) + np.vecdot(centers, centers)
    near = np.argpartition(apart, most - 1, axis=1)[:, :most]
    for centre in near.T:
        D = Z - centers[centre]
        length = np.sqrt(np.vecdot(D, D))
        shares += D**2 / np.where(length > 0, length, 1.0)[:, None]
    total = shares.sum(axis=1, keepdims=True)
    return np.asarray(shares / np.where(total > 0, total, 1.0))


def left_out_growth(counts: Array) -> Vector:
    """Return the growth of the distance to a centre of `counts` rows (k,) if the row is left out of its training.

    Without the row x the mean c of m rows is ``c - (x - c) / (m - 1)``. Then other rows find another centre nearer,
    too, and c moves on: by half as much again, as measured. The mean of one row does not exist without it.

    Examples
    --------
    >>> left_out_growth(np.array([4, 2]))
    array([1.5, 2.5])
    """
    m = np.asarray(counts, dtype=np.float64)
    return np.where(m > 1, 1.0 + _FOLLOWS / np.maximum(m - 1.0, 1.0), NO_CENTRE)
