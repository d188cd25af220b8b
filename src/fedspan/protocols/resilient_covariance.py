"""SVD of a resilient covariance estimate (SVD-RCE): leading eigenvectors of the geometric median of covariances.

A baseline: S. Minsker, "Geometric median and robust estimation in Banach spaces", Bernoulli 2015. It takes finite
replies as they come. Up per site: d (d + 1) / 2 numbers, once. Single replies are needed; memory L d^2 / 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator, GeometricMedian
from fedspan.aggregation.base import believed
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import top_eigenpairs
from fedspan.protocols.covariance_pca import local_gram, unpacked
from fedspan.protocols.principal_axes import PrincipalAxes
from fedspan.protocols.resilient_moments import typical_rows


@step
def local_phi(site: Site) -> dict[str, Any]:
    """Leaves the site: the upper triangle of its second moment ``Phi = X'X / q``, and its number of rows q."""
    if not len(site):
        raise InputError("this site has no rows to take a second moment of")
    return {"phi": local_gram(site)["gram"] / len(site), "n": len(site)}


def resilient_covariance(
    fed: Federation, *, rank: int, aggregator: Aggregator | None = None
) -> tuple[PrincipalAxes, dict[str, float]]:
    """Return the leading axes of the aggregated covariance, and the weight that each site had in it."""
    replies = fed.ask(local_phi)
    counts, phi = replies.stack("n"), replies.stack("phi")
    # Entries beside the diagonal stand for two each: with a factor sqrt(2) distances are those of the whole matrices.
    d = len(unpacked(phi[0]))
    factor = np.where(np.equal(*np.triu_indices(d)), 1.0, np.sqrt(2.0))
    aggregator = aggregator or GeometricMedian()
    combined = aggregator(phi * factor, believed(aggregator, counts))
    S = unpacked(combined.value / factor)
    variances, vectors = top_eigenpairs(S, rank)
    n = typical_rows(counts)
    axes = PrincipalAxes(vectors.T, n * np.maximum(variances, 0.0), n * float(np.trace(S)), n)
    return axes, dict(zip(replies, combined.weights.tolist(), strict=True))
