"""Made-up traffic for tests of the FedPCA reproduction."""

from __future__ import annotations

import numpy as np

from fedspan.papers.fedpca.costs_paper import AXES
from fedspan.papers.fedpca.traffic_paper import Traffic


def little_traffic(n_sites=20) -> Traffic:
    """Normal rows near a subspace of ten dimensions, and attacks off it."""
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(10, 14))
    normal = rng.normal(size=(700, 10)) @ axes + 0.05 * rng.normal(size=(700, 14))
    attacks = normal[:100] + rng.normal(size=(100, 14))
    X_test, y_test = np.concatenate([normal[500:], attacks]), np.repeat([0, 1], [200, 100])
    sites = np.array([f"{i * n_sites // 500:02d}" for i in range(500)])
    features = np.array([*AXES, *(f"column {i}" for i in range(11))])
    return Traffic(
        "made up", "made up", normal[:500], X_test, y_test, sites, features, np.where(y_test, "dos", "normal")
    )
