"""Whole numbers modulo 2^(64 w) as columns of w words of 64 bits, the lowest first: arrays (w, m) of uint64.

Every function works in place: a sum over sites needs no memory but its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORD_BITS = 64


def add(total: Words, other: Words) -> None:
    """Add `other` (w, m) to `total` (w, m).

    Examples
    --------
    >>> total = np.array([[2**64 - 1], [5]], dtype=np.uint64)
    >>> add(total, np.array([[1], [0]], dtype=np.uint64))
    >>> total.ravel()
    array([0, 6], dtype=uint64)
    """
    _add(total, other, None)


def subtract(total: Words, other: Words) -> None:
    """Subtract `other` (w, m) from `total` (w, m)."""
    if len(total) == 1:
        total -= other
    else:
        _add(total, ~other, np.ones(total.shape[1], dtype=np.bool_))


class Accumulator:
    """A sum of many numbers (w, m), whose carries are counted and carried only at the end."""

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
    """Turn the sign of the columns `where` (m,)."""
    numbers[:, where] = ~numbers[:, where]
    carry = where
    for word in numbers:
        np.add(word, carry, out=word)
        carry = carry & (word == 0)


def is_negative(numbers: Words) -> NDArray[np.bool_]:
    """Whether the columns are in the upper half of the range, where negative numbers are: (m,)."""
    return np.asarray(numbers[-1] >> np.uint64(WORD_BITS - 1) == 1)


def _add(total: Words, other: Words, carry: NDArray[np.bool_] | None) -> None:
    for k, (word, summand) in enumerate(zip(total, other, strict=True)):
        np.add(word, summand, out=word)
        last = k == len(total) - 1
        wrapped = None if last else word < summand
        if carry is not None:
            np.add(word, carry, out=word)
            if wrapped is not None:
                wrapped |= carry & (word == 0)
        carry = wrapped
