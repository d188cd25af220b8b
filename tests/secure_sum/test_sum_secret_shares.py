"""Secret sharing: any t shares give the secret, t - 1 say nothing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import FedspanError, InputError
from fedspan.secure_sum import sum_secret_shares as shamir
from fedspan.secure_sum.sum_secret_shares import PRIME, Joiner, split


def joined(shares, threshold):
    return Joiner(list(shares), threshold)(shares)


secrets_of_32 = st.binary(min_size=32, max_size=32)


def test_the_modulus_is_prime():
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in random.Random(0).sample(range(2, 10**9), 30):
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any(pow(x, 2**k, PRIME) == PRIME - 1 for k in range(twos))


def test_a_line_by_hand(monkeypatch):
    """With t = 2 and the slope 5 the shares of the secret 7 are 12, 17 and 22."""
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda _: 5)
    shares = split((7).to_bytes(32, "big"), 2, 3)
    assert [int.from_bytes(share, "big") for share in shares] == [12, 17, 22]


@given(secrets_of_32, st.integers(1, 12), st.integers(0, 8), st.randoms(use_true_random=False))
def test_any_t_shares_give_the_secret(secret, threshold, more, rng):
    shares = dict(enumerate(split(secret, threshold, threshold + more)))
    some = rng.sample(sorted(shares), threshold)
    assert joined({k: shares[k] for k in some}, threshold) == secret


@given(st.binary(min_size=1, max_size=33), st.binary(min_size=1, max_size=33))
def test_two_of_three_shares_fit_every_secret(first, second):
    """For any two shares and any secret there is a polynomial: t - 1 shares exclude nothing."""
    y = [int.from_bytes(first, "big") % PRIME, int.from_bytes(second, "big") % PRIME]
    for secret in (0, 1, 2**256 - 1):
        # Through (0, secret), (1, y0), (2, y1) goes one parabola; its value at 3 is the third share.
        third = (secret - 3 * y[0] + 3 * y[1]) % PRIME
        shares = {k: value.to_bytes(33, "big") for k, value in enumerate([*y, third])}
        assert int.from_bytes(joined(shares, 3), "big") == secret


def test_one_polynomial_for_each_secret():
    once, again = split(bytes(32), 3, 5), split(bytes(32), 3, 5)
    assert not set(once) & set(again)


def test_a_joiner_serves_many_secrets():
    secrets = [bytes([k]) * 32 for k in range(4)]
    held = [split(secret, 67, 100) for secret in secrets]
    joiner = Joiner(list(range(20, 100)), 67)
    assert [joiner(dict(enumerate(shares))) for shares in held] == secrets


def test_a_wrong_share_gives_another_secret(monkeypatch):
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda _: 5)
    shares = dict(enumerate(split((7).to_bytes(32, "big"), 2, 3)))
    shares[1] = (18).to_bytes(33, "big")
    assert int.from_bytes(joined(shares, 2), "big") == 6  # the line through (1, 12) and (2, 18)


def test_refusals():
    shares = dict(enumerate(split(bytes(32), 3, 4)))
    with pytest.raises(FedspanError, match="2 shares are there, and 3 are needed"):
        joined(dict(itertools.islice(shares.items(), 2)), 3)
    with pytest.raises(InputError, match="threshold=5 must be between 1 and the number of holders, 4"):
        split(bytes(32), 5, 4)
    with pytest.raises(InputError, match="has 32 bytes, not 3"):
        split(b"abc", 1, 1)
    with pytest.raises(FedspanError, match="do not belong to one secret"):
        joined({0: (2**256 + 1).to_bytes(33, "big")}, 1)
