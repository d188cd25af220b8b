"""SVD of a resilient covariance estimate (SVD-RCE): leading eigenvectors of the geometric median of covariances.

A baseline: S. Minsker, "Geometric median and robust estimation in Banach spaces", Bernoulli 2015. It takes finite
replies as they come. Up per site: d (d + 1) / 2 numbers, once. Single replies are needed; memory L d^2 / 2.
"""

from __future__ import annotations

import numpy as np

from fedspan.aggregation import Aggregator, GeometricMedian
from fedspan.federation import Federation
from fedspan.linalg import top_eigenpairs
from fedspan.protocols.covariance_pca import local_gram, unpacked
from fedspan.protocols.principal_axes import PrincipalAxes
from fedspan.protocols.resilient_moments import typical_rows


def resilient_covariance(
    fed: Federation, *, rank: int, aggregator: Aggregator | None = None
) -> tuple[PrincipalAxes, dict[str, float]]:
    """Return the leading axes of the aggregated covariance, and the weight that each site had in it."""
    replies = fed.ask(local_gram)
    counts = replies.stack("n")
    phi = replies.stack("gram") / np.maximum(counts, 1)[:, None]
    # Entries beside the diagonal stand for two each: with a factor sqrt(2) distances are those of the whole matrices.
    d = len(unpacked(phi[0]))
    factor = np.where(np.equal(*np.triu_indices(d)), 1.0, np.sqrt(2.0))
    combined = (aggregator or GeometricMedian())(phi * factor)
    S = unpacked(combined.value / factor)
    variances, vectors = top_eigenpairs(S, rank)
    n = typical_rows(counts)
    axes = PrincipalAxes(vectors.T, n * np.maximum(variances, 0.0), n * float(np.trace(S)), n)
    return axes, dict(zip(replies, combined.weights.tolist(), strict=True))
