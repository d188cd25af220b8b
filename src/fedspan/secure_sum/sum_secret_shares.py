"""Shamir's secret sharing (1979): any t of n shares give a secret of 32 bytes, fewer reveal nothing about it.

A secret is a number below 2^256 and the value at 0 of a random polynomial of degree t - 1 over the integers modulo a
prime. The share of the k-th holder is its value at k + 1.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from fedspan.errors import FedspanError, InputError

#: The smallest prime above 2^256: every secret of 32 bytes is one number, and a share takes one byte more.
PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# Holders are numbered by 10 bits: this many products fit between two reductions at little cost.
_REDUCE_EVERY = 8


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Return one share for each of the `holders`; any `threshold` of them give `secret`.

    Examples
    --------
    >>> shares = split(bytes(31) + b"!", threshold=2, holders=3)
    >>> Joiner([0, 2], threshold=2)({0: shares[0], 2: shares[2]})[-1:]
    b'!'
    """
    if len(secret) != SECRET_BYTES:
        raise InputError(f"a secret to be shared has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= holders:
        raise InputError(f"threshold={threshold} must be between 1 and the number of holders, {holders}")
    polynomial = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]  # the highest coefficient first
    polynomial.append(int.from_bytes(secret, "big"))
    return [_value(polynomial, k + 1).to_bytes(SHARE_BYTES, "big") for k in range(holders)]


class Joiner:
    """Joins the shares, by the holder's number from 0, of many secrets that the same holders have."""

    def __init__(self, holders: list[int], threshold: int) -> None:
        if len(holders) < threshold:
            raise FedspanError(f"{len(holders)} shares are there, and {threshold} are needed")
        self.holders = sorted(holders)[:threshold]
        points = [holder + 1 for holder in self.holders]
        self._weights = [_lagrange_at_zero(point, points) for point in points]

    def __call__(self, shares: Mapping[int, bytes]) -> bytes:
        """Return the secret of `shares`; wrong shares give another one, or an error where it is too large."""
        values = (int.from_bytes(shares[holder], "big") for holder in self.holders)
        secret = sum(weight * value for weight, value in zip(self._weights, values, strict=True)) % PRIME
        if secret >> (8 * SECRET_BYTES):
            raise FedspanError("these shares do not belong to one secret")
        return secret.to_bytes(SECRET_BYTES, "big")


def _value(polynomial: list[int], point: int) -> int:
    value = 0
    for k, coefficient in enumerate(polynomial):
        value = value * point + coefficient
        if k % _REDUCE_EVERY == 0:
            value %= PRIME
    return value % PRIME


def _lagrange_at_zero(point: int, points: list[int]) -> int:
    above, below = 1, 1
    for other in points:
        if other != point:
            above = above * other % PRIME
            below = below * (other - point) % PRIME
    return above * pow(below, -1, PRIME) % PRIME
