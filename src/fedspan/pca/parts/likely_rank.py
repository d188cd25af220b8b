"""The number of components by maximum likelihood: "Automatic choice of dimensionality for PCA" (Minka, 2000)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

_LEAST = 1e-15


def likely_rank(variance: NDArray[np.float64], n: float) -> int:
    """Return the most likely number of components (1 to d - 1) of `n` rows with variances (d,) along their axes.

    Examples
    --------
    >>> likely_rank(np.array([9.0, 4.0, 0.011, 0.01, 0.009]), 100)
    2
    """
    ranks = range(1, len(variance))
    return 1 + int(np.argmax([_evidence(variance, rank, n) for rank in ranks])) if ranks else 1


def _evidence(variance: NDArray[np.float64], rank: int, n: float) -> float:
    """Return the log-evidence of a rank, Minka's equation (30)."""
    d = len(variance)
    if variance[rank - 1] < _LEAST:
        return -np.inf
    halves = (d - np.arange(rank)) / 2
    prior = float(np.sum(gammaln(halves) - np.log(np.pi) * halves)) - rank * np.log(2)
    noise = max(_LEAST, float(variance[rank:].mean()))
    fit = -n / 2 * (float(np.sum(np.log(variance[:rank]))) + (d - rank) * np.log(noise))
    size = d * rank - rank * (rank + 1) / 2
    smoothed = np.where(np.arange(d) < rank, variance, noise)
    above, below = np.triu_indices(rank, 1, d)
    gaps = (variance[above] - variance[below]) * (1 / smoothed[below] - 1 / smoothed[above])
    curvature = float(np.sum(np.log(np.maximum(gaps, np.finfo(float).tiny)) + np.log(n)))
    return float(prior + fit + np.log(2 * np.pi) * (size + rank) / 2 - curvature / 2 - rank * np.log(n) / 2)
