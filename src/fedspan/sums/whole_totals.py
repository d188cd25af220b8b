"""Sums that most sites spoilt alike, which no comparison among them can tell."""

from __future__ import annotations

import numpy as np

from fedspan.errors import MessageError
from fedspan.federation import Total
from fedspan.sums.plausible_numbers import refuse_absurd


def whole(total: Total, **shapes: tuple[int, ...]) -> Total:
    """Return `total` if its keys have these shapes and numbers that data can have, or refuse it."""
    for name, shape in shapes.items():
        if name not in total or np.shape(total[name]) != shape:
            found = f"the shape {np.shape(total[name])}" if name in total else "nothing"
            raise MessageError(f"most sites sent {found} as {name!r}, and it must have the shape {shape}")
        refuse_absurd(total[name])
    return total
