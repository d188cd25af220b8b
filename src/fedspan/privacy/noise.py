"""Normal numbers from a secret key: the same for the same key, unpredictable without it.

A cryptographic stream (SHAKE-256) makes the numbers, because the state of a statistical generator can be computed from
its output. They are double-precision numbers, not real ones: ``docs/privacy.md`` states what that leaves open.
"""

from __future__ import annotations

import math
from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

#: Numbers that are made at once; even, because they come in pairs.
_BLOCK = 2**18


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
