"""The iterative federated clustering algorithm (IFCA): FedX with clustering from a random start. A baseline.

A. Ghosh, J. Chung, D. Yin and K. Ramchandran, "An efficient framework for clustered federated learning", NeurIPS 2020,
as L. Su, J. Xu and P. Yang compare with it: with the weights n_i / N by default.
"""

from __future__ import annotations

from typing import Any

from fedspan.federation import Federation
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.random_start import random_start


def ifca(
    fed: Federation, *, n_clusters: int, n_columns: int, scale: float = 1.0, weights: str = "total", **options: Any
) -> Refinement:
    """Return models (k, d) refined from one random start of length about `scale`; options are those of `fedx`."""
    start = random_start(fed, n_clusters=n_clusters, n_columns=n_columns, scale=scale)
    return fedx(fed, models=start.models, weights=weights, **options)
