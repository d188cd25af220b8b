"""Groups of rows for the tests of clustering."""

from __future__ import annotations

import numpy as np


def blobs(n=300, k=6, d=4, seed=0, apart=6.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    return rng.normal(size=(n, d)) + apart * rng.normal(size=(k, d))[y], y
