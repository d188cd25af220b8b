"""The resilient power method (ResPowMeth): the power method with a geometric median of the sites' products.

A baseline: M. Hardt and E. Price, "The noisy power method", 2014, with the mean replaced. It takes finite replies as
they come. Per iteration and site, each way: d r numbers. Single replies are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator, GeometricMedian
from fedspan.aggregation.base import believed
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import orthonormalize
from fedspan.protocols.power import random_start
from fedspan.protocols.subspace_iteration import local_product


@step
def local_phi_product(site: Site, U: NDArray[np.float64]) -> dict[str, Any]:
    """Leaves the site: ``Phi U`` (d, r) of its second moment ``Phi = X'X / q``, and its number of rows q."""
    if not len(site):
        raise InputError("this site has no rows to take a second moment of")
    return {"product": local_product(site, U)["product"] / len(site), "n": len(site)}


def resilient_power(
    fed: Federation, *, rank: int, n_columns: int, iterations: int = 10, aggregator: Aggregator | None = None
) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Return an orthonormal basis (d, rank) and the weight that each site had in the last iteration."""
    aggregator = aggregator or GeometricMedian()
    U, trust = random_start(fed.rng, n_columns, rank), {}
    for _ in fed.rounds(iterations):
        replies = fed.ask(local_phi_product, U=U)
        combined = aggregator(replies.stack("product"), believed(aggregator, replies.stack("n")))
        U = orthonormalize(combined.value, complete=True)
        trust = dict(zip(replies, combined.weights.tolist(), strict=True))
    return U, trust
