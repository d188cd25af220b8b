"""The closest of many centres, for blocks of rows and several sets of centres at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: Squared distances that differ by no more than this part of the squared lengths are equal: rounding makes as much.
_EQUAL = 1e-12


def closest(X: Matrix, centres: Matrix) -> NDArray[np.int32]:
    """Return the number (n, b) of the centre closest to each row in each of b sets; of equally close ones the first.

    Equally close are those that rounding cannot tell apart: so ties, which tables of few digits have, fall alike
    however rows are split and in whatever order their means were added up.

    One product of matrices. Rows and centres should be near the origin: a common offset costs digits.

    Parameters
    ----------
    X : array (n, d)
    centres : array (b, k, d)

    Examples
    --------
    >>> closest(np.array([[0.0], [5.0]]), np.array([[[1.0], [4.0]], [[9.0], [-9.0]]]))
    array([[0, 0],
           [1, 0]], dtype=int32)
    """
    b, k, d = centres.shape
    flat = centres.reshape(b * k, d)
    apart = X @ (-2.0 * flat.T)
    lengths = np.vecdot(flat, flat)
    apart += lengths
    apart = apart.reshape(len(X), b, k)
    rounding = _EQUAL * (np.vecdot(X, X)[:, None] + lengths.reshape(b, k).max(axis=1))
    near = apart <= (apart.min(axis=2) + rounding)[:, :, None]
    return np.asarray(near.argmax(axis=2), dtype=np.int32)


def squared_apart(X: Matrix, centres: Matrix, labels: NDArray[np.int32]) -> Matrix:
    """Return the squared distances (n, b) of rows from the centres that `labels` (n, b) say: by differences, exact.

    Examples
    --------
    >>> squared_apart(np.array([[0.0], [5.0]]), np.array([[[1.0], [4.0]]]), np.array([[0], [1]], dtype=np.int32))
    array([[1.],
           [1.]])
    """
    found = np.empty(labels.shape)
    for book, own in enumerate(labels.T):
        D = X - centres[book, own]
        found[:, book] = np.vecdot(D, D)
    return found


def rounded_mean(mean: Matrix, variance: Matrix) -> Matrix:
    """Return the mean (d,) to a part of the deviation, to see rows about: last bits that a split leaves have no say.

    Examples
    --------
    >>> rounded_mean(np.array([2.0 + 1e-15, 7.1]), np.array([1.0, 0.0]))
    array([2. , 7.1])
    """
    deviation = np.sqrt(variance)
    unit = np.exp2(np.floor(np.log2(np.where(deviation > 0, deviation, 1.0))) - 8)
    return np.asarray(np.where(deviation > 0, np.rint(mean / unit) * unit, mean))
