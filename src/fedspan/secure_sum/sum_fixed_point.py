"""Numbers as whole multiples of a resolution: what is added up modulo a power of two is exact in any order.

A real number is a multiple of 2^-fraction_bits in two's complement, in as many words of 64 bits as the declared range
needs; a whole number is itself, in one word. Each holds the sum of up to `MOST_SITES` numbers of the range, so that a
sum of numbers that their sites have checked never wraps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation.policy import MOST_BITS, MOST_SITES, SecureSum
from fedspan.secure_sum.sum_modular import WORD_BITS, Words, is_negative, negate

#: What whole numbers of one site may reach: `MOST_SITES` of them stay below 2^63.
LARGEST_WHOLE = 2**63 // MOST_SITES - 1
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers of at most `largest`, to a resolution of ``2**-fraction_bits``.

    Examples
    --------
    >>> numbers = FixedPoint(largest=2.0**84, fraction_bits=96)
    >>> numbers.words, numbers.decoded(numbers.encoded(np.array([-1.5, 1e-20])))
    (3, array([-1.5e+00, 1.0e-20]))
    """

    largest: float
    fraction_bits: int

    def __post_init__(self) -> None:
        right = isinstance(self.largest, float) and 0 < self.largest < math.inf
        right &= type(self.fraction_bits) is int and abs(self.fraction_bits) <= MOST_BITS
        if not right or self.words * WORD_BITS > MOST_BITS:
            raise InputError(
                f"a range of {self.largest!r} with {self.fraction_bits!r} binary places is too much for a secure sum"
            )

    @classmethod
    def of(cls, settings: SecureSum) -> FixedPoint:
        """Return the numbers that a federation's secure sums add up."""
        return cls(float(settings.largest), settings.fraction_bits)

    @property
    def words(self) -> int:
        """Words of 64 bits to a number: range, resolution, room for `MOST_SITES` and a sign."""
        whole_bits = math.frexp(self.largest)[1]
        return max(1, math.ceil((whole_bits + self.fraction_bits + math.log2(MOST_SITES) + 1) / WORD_BITS))

    @property
    def resolution(self) -> float:
        """The distance of two neighbouring numbers; a number is rounded to the nearest."""
        return math.ldexp(1.0, -self.fraction_bits)

    def encoded(self, values: NDArray[np.float64]) -> Words:
        """Return `values` (m,) as words (w, m); refuse what is not finite or beyond the range."""
        magnitude = np.abs(values)
        if not np.all(magnitude <= self.largest):  # false for NaN too
            raise InputError(f"a value is not finite, or beyond the {self.largest:g} that a secure sum takes")
        rest = np.ldexp(magnitude, self.fraction_bits)
        words = np.empty((self.words, len(values)), dtype=np.uint64)
        # What a double has above a power of two, and what it has below, are doubles again: nothing is rounded but the
        # part below the resolution.
        for k in range(self.words - 1, -1, -1):
            digit = np.floor(np.ldexp(rest, -WORD_BITS * k)) if k else np.rint(rest)
            rest = rest - np.ldexp(digit, WORD_BITS * k)
            words[k] = digit.astype(np.uint64)
        negate(words, values < 0)
        return words

    def decoded(self, words: Words) -> NDArray[np.float64]:
        """Return the values (m,) of words (w, m), in double precision."""
        words = words.copy()
        negative = is_negative(words)
        negate(words, negative)
        values = np.zeros(words.shape[1])
        for k, word in enumerate(words):  # the small parts first: what is rounded is below the last bit of the result
            values += np.ldexp((word & _LOW).astype(np.float64), WORD_BITS * k - self.fraction_bits)
            values += np.ldexp((word >> _HALF).astype(np.float64), WORD_BITS * k + 32 - self.fraction_bits)
        return np.where(negative, -values, values)


def encoded_whole(values: NDArray[np.integer]) -> Words:
    """Return whole numbers (m,) as words (1, m); refuse those of which a sum could wrap."""
    if values.size and (int(values.max()) > LARGEST_WHOLE or int(values.min()) < -LARGEST_WHOLE):
        raise InputError(f"a whole number is beyond the {LARGEST_WHOLE} that a secure sum takes")
    return values.astype(np.int64).view(np.uint64)[None]


def decoded_whole(words: Words) -> NDArray[np.int64]:
    """Return the whole numbers (m,) of words (1, m)."""
    whole: NDArray[np.int64] = words[0].view(np.int64)
    return whole
