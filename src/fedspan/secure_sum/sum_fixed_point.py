"""Numbers as whole multiples of a resolution, modulo a power of two: their sum is exact in any order.

A real number is a multiple of 2^-fraction_bits in two's complement, in as many words of 64 bits as the declared range
needs. It is a column of an array (w, m) of uint64, the lowest word first. A whole number is one word. Each holds the
sum of up to `MOST_SITES` numbers of the range, so that a sum of numbers that their sites have checked never wraps.

A double has 53 bits, and the range may have more. Without further care the bits of a large number would end above those
of a small one. A reader of the total could read the two apart. So a site fills the bits below the leading
`SIGNIFICANT_BITS` of its own number with random ones. What other sites have added there can't be recovered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation.policy import MOST_SITES, SecureSum

Words = NDArray[np.uint64]

WORD_BITS = 64
#: The leading bits of a number that count: those of a double, and three more. With these the filling changes no rounded
#: total of small whole numbers. With the bits for `MOST_SITES` a total has 66 bits at most, wherever they are in the
#: range.
SIGNIFICANT_BITS = 56
#: The largest whole number of one site: `MOST_SITES` of them stay below 2^63.
LARGEST_WHOLE = 2**63 // MOST_SITES - 1
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_ONE, _LAST, _ALL = np.uint64(1), np.uint64(WORD_BITS - 1), np.uint64(2**WORD_BITS - 1)


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

    def encoded(self, values: NDArray[np.float64], filling: Words | None = None) -> Words:
        """Return `values` (m,) as words (w, m); refuse what is not finite or beyond the range.

        Random words `filling` (w, m) replace the bits of each number below its `SIGNIFICANT_BITS` leading ones.
        """
        magnitude = np.abs(values)
        if not np.all(magnitude <= self.largest):  # false for NaN too
            raise InputError(f"a value is not finite, or beyond the {self.largest:g} that a secure sum takes")
        rest = np.ldexp(magnitude, self.fraction_bits)
        words = np.empty((self.words, len(values)), dtype=np.uint64)
        # The part of a double above a power of two, and the part below, are doubles: only the part below the
        # resolution is rounded.
        for k in range(self.words - 1, -1, -1):
            digit = np.floor(np.ldexp(rest, -WORD_BITS * k)) if k else np.rint(rest)
            rest = rest - np.ldexp(digit, WORD_BITS * k)
            words[k] = digit.astype(np.uint64)
        if filling is not None:
            free = np.frexp(np.ldexp(magnitude, self.fraction_bits))[1].astype(np.int64) - SIGNIFICANT_BITS
            for k in range(self.words):
                bits = np.clip(free - WORD_BITS * k, 0, WORD_BITS).astype(np.uint64)
                below = np.where(bits > _LAST, _ALL, (_ONE << np.minimum(bits, _LAST)) - _ONE)
                words[k] |= filling[k] & below
        negate(words, values < 0)
        return words

    def decoded(self, words: Words) -> NDArray[np.float64]:
        """Return the values (m,) of words (w, m), in double precision."""
        words = words.copy()
        negative = np.asarray(words[-1] >> np.uint64(WORD_BITS - 1) == 1)  # the upper half of the range
        negate(words, negative)
        values = np.zeros(words.shape[1])
        for k, word in enumerate(words):  # the small parts first: rounding stays below the last bit of the result
            values += np.ldexp((word & _LOW).astype(np.float64), WORD_BITS * k - self.fraction_bits)
            values += np.ldexp((word >> _HALF).astype(np.float64), WORD_BITS * k + 32 - self.fraction_bits)
        return np.where(negative, -values, values)


def encoded_whole(values: NDArray[np.integer]) -> Words:
    """Return whole numbers (m,) as words (1, m); refuse those of which a sum could wrap."""
    if values.size and (int(values.max()) > LARGEST_WHOLE or int(values.min()) < -LARGEST_WHOLE):
        raise InputError(f"a whole number is beyond the {LARGEST_WHOLE} that a secure sum takes")
    return values.astype(np.int64).view(np.uint64)[None]


def add(total: Words, other: Words) -> None:
    """Add `other` (w, m) to `total` (w, m), in place.

    Examples
    --------
    >>> total = np.array([[2**64 - 1], [5]], dtype=np.uint64)
    >>> add(total, np.array([[1], [0]], dtype=np.uint64))
    >>> total.ravel()
    array([0, 6], dtype=uint64)
    """
    _add(total, other, None)


def subtract(total: Words, other: Words) -> None:
    """Subtract `other` (w, m) from `total` (w, m), in place."""
    if len(total) == 1:
        total -= other
    else:
        _add(total, ~other, np.ones(total.shape[1], dtype=np.bool_))


class Accumulator:
    """A sum of many numbers (w, m), whose carries are counted, and carried only at the end."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._total = np.zeros(shape, dtype=np.uint64)
        self._carries = np.zeros((shape[0] - 1, shape[1]), dtype=np.uint16)
        self._wrapped = np.zeros(self._carries.shape, dtype=np.bool_)

    def add(self, other: Words) -> None:
        """Add a number; at most 65,535 times."""
        np.add(self._total, other, out=self._total)
        np.less(self._total[:-1], other[:-1], out=self._wrapped)
        np.add(self._carries, self._wrapped, out=self._carries)

    def value(self) -> Words:
        """Return the sum; nothing may be added after that."""
        for k, carry in enumerate(self._carries):
            word = self._total[k + 1]
            np.add(word, carry, out=word)
            if k + 1 < len(self._carries):
                np.add(self._carries[k + 1], word < carry, out=self._carries[k + 1])
        return self._total


def negate(numbers: Words, where: NDArray[np.bool_]) -> None:
    """Turn the sign of the columns `where` (m,), in place."""
    numbers[:, where] = ~numbers[:, where]
    carry = where
    for word in numbers:
        np.add(word, carry, out=word)
        carry = carry & (word == 0)


def _add(total: Words, other: Words, carry: NDArray[np.bool_] | None) -> None:
    for k, (word, summand) in enumerate(zip(total, other, strict=True)):
        np.add(word, summand, out=word)
        wrapped = None if k == len(total) - 1 else word < summand
        if carry is not None:
            np.add(word, carry, out=word)
            if wrapped is not None:
                wrapped |= carry & (word == 0)
        carry = wrapped
