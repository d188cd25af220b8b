"""SVD of a resilient covariance estimate (SVD-RCE): leading eigenvectors of the geometric median of covariances.

A baseline: S. Minsker, "Geometric median and robust estimation in Banach spaces", Bernoulli 2015. It does not check
replies beyond being finite. Up per site: d (d + 1) / 2 numbers, once. Single replies are needed; memory L d^2 / 2.
"""

from __future__ import annotations

from fedspan.aggregation import Aggregator, GeometricMedian
from fedspan.federation import Federation
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.parts.principal_axes import PrincipalAxes


def resilient_covariance(
    fed: Federation, *, rank: int | None = None, aggregator: Aggregator | None = None
) -> tuple[PrincipalAxes, dict[str, float]]:
    """Return the leading axes of the aggregated covariance, and the weight of each site in it."""
    return covariance_pca(fed, rank=rank, aggregator=aggregator or GeometricMedian())
