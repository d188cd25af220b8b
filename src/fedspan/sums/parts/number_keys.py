"""Doubles as 64-bit integers in the same order, and equal parts of intervals of them: for searches by counts.

A search that divides an interval into `PARTS` equal parts in each round ends after `PASS` rounds with a single number.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedspan.federation.site.parameters import ArrayOf, Vector

Keys = Annotated[NDArray[np.uint64], ArrayOf("word", 1)]

PARTS = 256
PASS = 8  # rounds from all numbers to one: 256^8 = 2^64
_SIGN = np.uint64(1 << 63)


def keys(values: Vector) -> Keys:
    """Return integers in the order of the numbers: negative ones have all bits flipped, others the sign bit."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def key_values(keys: Keys) -> Vector:
    """Undo `keys`."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)


def part_edges(low: Keys, high: Keys) -> Keys:
    """Return the edges (d, PARTS + 1) of equal parts of the intervals from `low` to `high` (d,)."""
    span = (high - low)[:, None]
    width = (np.maximum(span, 1) - np.uint64(1)) // np.uint64(PARTS) + np.uint64(1)
    steps = np.minimum(np.arange(PARTS, dtype=np.uint64) * width, span)
    return np.asarray(low[:, None] + np.concatenate([steps, span], axis=1))


def narrowed(reached: NDArray[np.bool_], low: Keys, high: Keys, *, widen: bool) -> tuple[Keys, Keys]:
    """Return the part of each interval that ends with the first edge that is `reached` (d, PARTS + 1).

    If that is the lowest edge, or no edge is reached, sites came or left: with `widen` the interval has no bound there.
    """
    least, most = keys(np.array([-np.inf, np.inf]))
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), PARTS + 1)
    edges = part_edges(low, high)
    part = np.clip(first, 1, PARTS)
    low, high = _at(edges, part - 1), _at(edges, part)
    if widen:
        low, high = np.where(first == 0, least, low), np.where(first > PARTS, most, high)
    return low, high


def _at(edges: Keys, index: NDArray[np.intp]) -> Keys:
    return np.asarray(np.take_along_axis(edges, index[:, None], axis=1)[:, 0])
