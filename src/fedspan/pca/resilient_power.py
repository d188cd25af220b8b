"""The resilient power method (ResPowMeth): the power method with a geometric median of the sites' products.

A baseline: M. Hardt and E. Price, "The noisy power method", 2014, with the mean replaced. It does not check replies
beyond being finite. Per iteration and site, each way: d r numbers. Single replies are needed.
"""

from __future__ import annotations

from fedspan.aggregation import Aggregator, GeometricMedian
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix
from fedspan.pca.power_method import power


def resilient_power(
    fed: Federation, *, rank: int, n_columns: int, iterations: int = 10, aggregator: Aggregator | None = None
) -> tuple[Matrix, dict[str, float]]:
    """Return an orthonormal basis (d, rank), and the weight of each site in the last iteration."""
    aggregator = aggregator or GeometricMedian()
    return power(fed, rank=rank, n_columns=n_columns, iterations=iterations, aggregator=aggregator)
