"""Vanilla FedAvg: one linear model for all sites, whatever their clusters. A baseline."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.federation import Federation
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.refinement import Refinement


def vanilla_fedavg(fed: Federation, *, n_columns: int, **options: Any) -> Refinement:
    """Return one model (1, d) for all sites; options are those of `fedx`."""
    return fedx(fed, models=np.zeros((1, n_columns)), **options)
