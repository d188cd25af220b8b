"""Tables of low rank, and the angle between subspaces."""

from __future__ import annotations

import numpy as np


def sine(A, B):
    """Return the sine of the largest angle between the row spaces of A and B, without cancellation."""
    return np.linalg.norm(B.T - A.T @ (A @ B.T), 2)


def low_rank(seed=0, n=300, d=12, gap=True):
    rng = np.random.default_rng(seed)
    sizes = np.array([10.0, 6.0, 4.0, 3.0] + [0.5] * (d - 4)) if gap else np.linspace(3, 1, d)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=(n, d)) * sizes @ axes.T + rng.normal(size=d) * 5, rng.integers(0, 8, n)
