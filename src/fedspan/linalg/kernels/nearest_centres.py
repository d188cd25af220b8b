"""The closest of many centres, for a block of rows and several sets of centres at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix

#: Squared distances that differ by no more than this share of the squared lengths count as equal: rounding errors.
_EQUAL = 1e-12


def closest(X: Matrix, centres: Matrix) -> NDArray[np.int32]:
    """Return the index (n, b) of the centre (b, k, d) closest to each row (n, d) in each of b sets; of ties, the first.

    Centres tie when their distances differ by no more than rounding. Tables of few digits have many ties. They are
    broken alike however rows are split among sites and in whatever order their means were added up.

    One matrix product. Rows and centres should be near the origin: a common offset costs digits.
    """
    b, k, d = centres.shape
    flat = centres.reshape(b * k, d)
    apart = X @ (-2.0 * flat.T)
    lengths = np.vecdot(flat, flat)
    apart += lengths
    apart = apart.reshape(len(X), b, k)
    rounding = _EQUAL * (np.vecdot(X, X)[:, None] + lengths.reshape(b, k).max(axis=1))
    least = np.take_along_axis(apart, apart.argmin(axis=2)[:, :, None], axis=2)  # faster than a minimum
    near = apart <= least + rounding[:, :, None]
    return np.asarray(near.argmax(axis=2), dtype=np.int32)


def squared_apart(X: Matrix, centres: Matrix, labels: NDArray[np.int32]) -> Matrix:
    """Return the squared distances (n, b) of rows from the centres of their `labels` (n, b), by exact differences."""
    found = np.empty(labels.shape)
    for book, own in enumerate(labels.T):
        D = X - centres[book, own]
        found[:, book] = np.vecdot(D, D)
    return found


def rounded_mean(mean: Matrix, variance: Matrix) -> Matrix:
    """Return the mean (d,), rounded to a share of the deviation: its last bits depend on how rows are split."""
    deviation = np.sqrt(variance)
    unit = np.exp2(np.floor(np.log2(np.where(deviation > 0, deviation, 1.0))) - 8)
    return np.asarray(np.where(deviation > 0, np.rint(mean / unit) * unit, mean))
