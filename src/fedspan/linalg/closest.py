"""The closest of many centres, for blocks of rows and several sets of centres at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Matrix = NDArray[np.float64]


def closest(X: Matrix, centres: Matrix) -> NDArray[np.int32]:
    """Return the number (n, b) of the centre closest to each row in each of b sets; of equally close ones the first.

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
    apart += np.vecdot(flat, flat)
    return np.asarray(apart.reshape(len(X), b, k).argmin(axis=2), dtype=np.int32)


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
