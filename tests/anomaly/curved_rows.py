"""Rows and settings for the tests of detectors by networks."""

from __future__ import annotations

import numpy as np

UNITS = np.array([1.0, 100.0, 1e-3, 1.0, 5.0, 1.0])
QUICK = {"hidden": (12,), "latent": 2, "max_rounds": 30, "batch_size": 256, "check_every": 5, "random_state": 0}


def rows(n=900, seed=0):
    """Rows near a curved surface, in units of all sizes."""
    rng = np.random.default_rng(seed)
    s, t = rng.uniform(-1.5, 1.5, size=(2, n))
    X = np.stack([s, t, np.sin(2 * s), s * t, np.cos(2 * t), s - t], axis=1)
    return (X + 0.05 * rng.normal(size=X.shape)) * UNITS + 7.0


def anomalies(n=300, seed=1):
    """Each column as it should be, but not together."""
    X = rows(n, seed)
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(column) for column in X.T], axis=1) + 2.0 * UNITS * rng.choice([-1, 1], X.shape)
