"""Numbers that no data have: refused where sums are taken, and nobody is asked whom to believe."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedspan.errors import InputError

ABSURD = 1e100  # its square is a number still


def refuse_absurd(*values: ArrayLike) -> None:
    """Refuse numbers that would overflow when they are multiplied or added up."""
    if not all((np.abs(np.asarray(value)) < ABSURD).all() for value in values):
        raise InputError(
            f"sites sent numbers beyond {ABSURD:g}: scale the features and targets, or use an aggregator if some "
            "sites may lie"
        )
