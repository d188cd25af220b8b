"""The federated power method: the attack-free baseline of the resilient ones, and their common step.

``U <- QR(sum_l Phi_l U)`` from a random start. Per iteration and site, each way: d r numbers. Only sums are needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation
from fedspan.linalg import orthonormalize
from fedspan.protocols.subspace_iteration import local_product


def power(fed: Federation, *, rank: int, n_columns: int, iterations: int = 10) -> NDArray[np.float64]:
    """Return an orthonormal basis (d, rank) of the leading subspace of the rows as they are: centre them first."""
    U = random_start(fed.rng, n_columns, rank)
    for _ in fed.rounds(iterations):
        U = orthonormalize(fed.sum(local_product, V=U)["product"], complete=True)
    return U


def random_start(rng: np.random.Generator, n_columns: int, rank: int) -> NDArray[np.float64]:
    """Return a random orthonormal basis (d, rank)."""
    return orthonormalize(rng.standard_normal((n_columns, rank)))
