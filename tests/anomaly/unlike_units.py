"""Rows with a few strong directions, in wildly different units, at nine sites."""

from __future__ import annotations

import numpy as np

DISTANCES = ("residual", "mahalanobis", "combined")
SIZES = np.array([9.0, 5.0, 3.0, 0.6, 0.5, 0.3, 0.2, 0.1])
AXES = np.linalg.qr(np.random.default_rng(7).normal(size=(8, 8)))[0]
UNITS = 10.0 ** np.arange(-3, 5)


def rows(n=600, seed=0):
    """Normal rows with three strong directions, in eight wildly different units."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 8)) * SIZES @ AXES.T + 2.0) * UNITS


def anomalies(n=300, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 8)) * SIZES[::-1] @ AXES.T + 2.0) * UNITS


def labels(n=600, sites=9):
    return np.random.default_rng(3).integers(0, sites, n).astype(str)
