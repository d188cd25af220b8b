"""Values that are copies of one another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedspan.aggregation.safe_arithmetic import distances, norms, shrunk

#: Values of honest sites that depend on their own rows differ by more than this part of their length.
_SAME = 1e-6


def first_of_copies(values: ArrayLike) -> NDArray[np.bool_]:
    """Return which of `values` (L, ...) are not copies of an earlier one: a mask (L,).

    For values that honest sites can't share because each is of a site's own rows, such as gradients. Malicious sites
    that repeat an honest reply (`fedspan.attacks.Mimic`) then have one vote together with it. A minority and its
    original are at most ``(L + 1) / 2`` values: where more agree, honest sites share a value, and nothing is left out.
    Zeros do not count as copies.

    Examples
    --------
    >>> first_of_copies([[1.0, 2.0], [3.0, 1.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    array([ True,  True, False,  True,  True])
    """
    points, _ = shrunk(np.asarray(values, dtype=np.float64).reshape(len(np.asarray(values)), -1))
    lengths = norms(points)
    same = (distances(points) <= _SAME * lengths[:, None]) & (lengths > 0)[:, None]
    same |= same.T
    shared = 2 * same.sum(axis=1) > len(points) + 1
    earlier = np.tril(same, -1).any(axis=1)
    return np.asarray(~earlier | shared)
