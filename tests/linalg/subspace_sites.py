"""Random subspaces of sites, near to each other or not, for the tests of projectors and their medians."""

from __future__ import annotations

import numpy as np


def basis(rng, n, r):
    return np.linalg.qr(rng.normal(size=(n, r)))[0]


def near(rng, U, spread):
    """A subspace about `spread` away from span(U), in a basis of its own."""
    n, r = U.shape
    return np.linalg.qr(U + spread * rng.normal(size=U.shape) / np.sqrt(n * r))[0] @ basis(rng, r, r)


def sites(rng, n, r, honest, malicious, spread):
    U = basis(rng, n, r)
    return np.stack([near(rng, U, spread) for _ in range(honest)] + [basis(rng, n, r) for _ in range(malicious)])
