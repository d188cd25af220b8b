"""How unequal the directions of a table's features are, sampling errors taken off."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg import orthonormalize

#: Rows that tell how unequal the features' directions are: this many times their number, or all there are.
_ROWS_PER_FEATURE = 4
#: A largest eigenvalue beyond this many times what white features would give by chance is believed.
_WHITE = 1.1


def feature_spread(X: NDArray[Any], centre: bool) -> tuple[float, float]:
    """Return the largest eigenvalue of the second moment of rows and the mean of all; of white features that one twice.

    The largest eigenvalue of a sample of N white rows with n features is ``(1 + sqrt(n / N))^2`` times too large.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((2000, 50))
    >>> feature_spread(X, False), feature_spread(X * np.r_[3.0, np.ones(49)], False)
    ((1.0..., 1.0...), (9..., 1.1...))
    """
    n = X.shape[1]
    some = X[:: max(1, len(X) // max(1000, _ROWS_PER_FEATURE * n))]
    S = np.asarray(some, dtype=np.float64)
    S = S - S.mean(axis=0) if centre else S
    mean = float(np.vdot(S, S)) / max(1, S.size)
    V = orthonormalize(np.random.default_rng(0).standard_normal((n, min(4, n))))
    largest = 0.0
    for _ in range(8):
        W = S.T @ (S @ V) / len(S)
        largest = float(np.linalg.eigvalsh(V.T @ W).max())
        V = orthonormalize(W, complete=True)
    chance = (1.0 + np.sqrt(n / len(S))) ** 2
    return (largest if largest > _WHITE * chance * mean else mean), mean
