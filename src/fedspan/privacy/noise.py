"""Normal numbers from a secret key: the same for the same key, unpredictable without it.

A cryptographic stream (SHAKE-256) makes the numbers, because the state of a statistical generator can be computed from
its output. Sites add them as whole numbers of small steps (`with_noise`).
"""

from __future__ import annotations

import math
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

#: Numbers that are made at once; even, because they come in pairs.
_BLOCK = 2**18
#: Steps of the grid in one deviation of the noise, as a power of two. A double has a thousand values or more in each.
_GRID_BITS = 40
#: The largest noise, in units of the sensitivity: beyond it the steps of the grid would be too coarse for the sums.
LARGEST_MULTIPLIER = 2.0**20


def with_noise(
    exact: NDArray[np.float64],
    key: bytes,
    *,
    sensitivity: float,
    multiplier: float,
    sharers: int = 1,
    numbers: int | None = None,
) -> NDArray[np.float64]:
    """Return numbers with a share of normal noise of `multiplier` times their sensitivity, on a grid.

    Numbers and noise are rounded to whole steps of 2^-40 of the noise's deviation, and added as such. The last bits of
    a sum of two doubles show which sums are possible. However large the noise is, they would give the exact number
    (Mironov, "On significance of the least significant bits for differential privacy", 2012).

    Parameters
    ----------
    sharers : int, default=1
        The number of sites whose shares make up all of the noise.
    numbers : int, optional
        How many of the numbers one row can move. Default: all. Rounding moves each by a step at most. The noise is
        larger by what that adds to the sensitivity.

    Examples
    --------
    >>> found = with_noise(np.array([5.0, 7.0]), b"secret", sensitivity=1.0, multiplier=2.0)
    >>> bool((np.abs(found - [5.0, 7.0]) < 2.0 * 8.6).all())
    True
    """
    if not exact.size:
        return exact
    moved = exact.size if numbers is None else numbers
    deviation = sensitivity / (1.0 / multiplier - math.sqrt(moved) * 2.0**-_GRID_BITS) / math.sqrt(sharers)
    step = math.ldexp(deviation, -_GRID_BITS)
    if not (multiplier <= LARGEST_MULTIPLIER and 1e-200 < step < 1e200):
        raise InputError(f"noise of {multiplier:g} times a sensitivity of {sensitivity:g} can't be added")
    steps = np.rint(np.ldexp(normal(key, exact.shape), _GRID_BITS))
    return np.asarray(step * (np.rint(exact / step) + steps))


def normal(key: bytes, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return standard normal numbers of the given shape.

    The transform of Box and Muller, with 53 random bits for the radius and for the angle. No number is beyond 8.6
    deviations, which a true normal one is with a probability of 1e-17.

    Examples
    --------
    >>> numbers = normal(b"secret", (2, 3))
    >>> bool((numbers == normal(b"secret", (2, 3))).all()), bool((numbers == normal(b"other", (2, 3))).any())
    (True, False)
    """
    count = math.prod(shape)
    numbers = np.empty(count + count % 2)
    for block, start in enumerate(range(0, len(numbers), _BLOCK)):
        part = numbers[start : start + _BLOCK]
        half = len(part) // 2
        bits = _stream(key, block, len(part)) >> np.uint64(11)
        radius = np.sqrt(-2 * np.log((bits[:half] + np.uint64(1)) * 2.0**-53))
        angle = bits[half:] * (2 * np.pi * 2.0**-53)
        part[:half] = radius * np.cos(angle)
        part[half:] = radius * np.sin(angle)
    return numbers[:count].reshape(shape)


def _stream(key: bytes, block: int, count: int) -> NDArray[np.uint64]:
    """Return `count` uniform 64-bit numbers: block number `block` of the key's stream."""
    digest = shake_256(b"fedspan noise\0" + len(key).to_bytes(4, "little") + key + block.to_bytes(8, "little"))
    return np.frombuffer(digest.digest(8 * count), dtype="<u8").astype(np.uint64, copy=False)
