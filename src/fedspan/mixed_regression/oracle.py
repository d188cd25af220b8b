"""FedX with clustering from the true models: what no algorithm can start from. A yardstick."""

from __future__ import annotations

from typing import Any

from fedspan.federation import Federation
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.refinement import Matrix, Refinement


def oracle(fed: Federation, *, truth: Matrix, **options: Any) -> Refinement:
    """Return what `fedx` makes of the `truth` (k, d); options are those of `fedx`."""
    return fedx(fed, models=truth, **options)
