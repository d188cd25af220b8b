"""Fixed point: exact to the resolution, the same bits in any order, no wrap within the declared range."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError, PolicyError
from fedspan.federation.policy import SecureSum
from fedspan.secure_sum.sum_fixed_point import (
    LARGEST_WHOLE,
    MOST_SITES,
    SIGNIFICANT_BITS,
    Accumulator,
    FixedPoint,
    add,
    encoded_whole,
    negate,
    subtract,
)

DEFAULT = FixedPoint(2.0**84, 96)
ONE_WORD = FixedPoint(1024.0, 40)
formats = st.sampled_from([DEFAULT, ONE_WORD, FixedPoint(1e12, 50), FixedPoint(3.0, 0), FixedPoint(1e-6, 90)])


def whole(words):
    """The signed whole number of each column, by Python's own integers."""
    bits = 64 * len(words)
    unsigned = [sum(int(w) << (64 * k) for k, w in enumerate(column)) for column in words.T]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in unsigned]


def random_words(rng, width, count=5):
    return rng.integers(0, 2**64, size=(width, count), dtype=np.uint64)


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_modular_arithmetic_is_that_of_whole_numbers(width, seed):
    rng = np.random.default_rng(seed)
    a, b = random_words(rng, width), random_words(rng, width)
    a[:, 0], b[:, 0] = 2**64 - 1, 0  # where carries run all the way
    b[0, 0] = 1
    for change, sign in ((add, 1), (subtract, -1)):
        result, before = a.copy(), b.copy()
        change(result, b)
        np.testing.assert_array_equal(b, before)
        modulus = 1 << (64 * width)
        expected = [(x + sign * y) % modulus for x, y in zip(whole(a), whole(b), strict=True)]
        assert [value % modulus for value in whole(result)] == expected


@given(st.integers(1, 4), st.integers(0, 9), st.integers(0, 2**32))
def test_many_numbers_are_added_as_whole_numbers_are(width, count, seed):
    rng = np.random.default_rng(seed)
    numbers = [random_words(rng, width) for _ in range(count)]
    for words in numbers:
        words[:, 0] = 2**64 - 1  # where carries run all the way
        words[1:, 1] = 2**64 - 1
    total = Accumulator((width, 5))
    for words in numbers:
        total.add(words)
    modulus = 1 << (64 * width)
    columns = zip(*map(whole, numbers), strict=True) if numbers else [[]] * 5
    assert [value % modulus for value in whole(total.value())] == [sum(column) % modulus for column in columns]


@given(formats, st.integers(0, 2**32))
def test_negation(numbers, seed):
    words = random_words(np.random.default_rng(seed), numbers.words, 3)
    words[:, 0] = 0
    words[-1] >>= np.uint64(1)
    before = whole(words)
    negate(words, np.array([True, True, False]))
    assert whole(words) == [-before[0], -before[1], before[2]]


@given(formats, st.data())
def test_rounds_to_the_nearest_multiple(numbers, data):
    finite = st.floats(-numbers.largest, numbers.largest)
    values = np.array(data.draw(st.lists(finite, min_size=1, max_size=8)))
    words = numbers.encoded(values)
    for value, found in zip(values.tolist(), whole(words), strict=True):
        assert abs(Fraction(value) * 2**numbers.fraction_bits - found) <= Fraction(1, 2)
    tolerance = numbers.resolution / 2 + np.spacing(np.abs(values))
    assert np.all(np.abs(numbers.decoded(words) - values) <= tolerance)


@given(formats, st.data())
def test_sums_are_exact_and_the_same_bits_in_any_order(numbers, data):
    finite = st.floats(-numbers.largest, numbers.largest)
    values = data.draw(st.lists(finite, min_size=2, max_size=12))
    order = data.draw(st.permutations(values))
    results = []
    for given_values in (values, order):
        total = np.zeros((numbers.words, 1), dtype=np.uint64)
        for value in given_values:
            add(total, numbers.encoded(np.array([value])))
        results.append(numbers.decoded(total)[0])
    assert results[0].tobytes() == results[1].tobytes()
    exact = sum(map(Fraction, values))
    allowed = len(values) * numbers.resolution / 2 + 2 * math.ulp(abs(float(exact)))
    assert abs(Fraction(float(results[0])) - exact) <= allowed


@pytest.mark.parametrize("numbers", [DEFAULT, ONE_WORD, FixedPoint(1e12, 50)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_most_sites_of_the_largest_values_do_not_wrap(numbers, sign):
    one = numbers.encoded(np.array([sign * numbers.largest]))
    total = np.zeros_like(one)
    for _ in range(MOST_SITES):
        add(total, one)
    assert numbers.decoded(total)[0] == sign * MOST_SITES * numbers.largest


@given(formats, st.data(), st.integers(0, 2**32))
def test_random_bits_fill_a_number_below_those_that_count(numbers, data, seed):
    finite = st.floats(-numbers.largest, numbers.largest)
    values = np.array(data.draw(st.lists(finite, min_size=1, max_size=8)))
    filling = random_words(np.random.default_rng(seed), numbers.words, len(values))
    for bare, filled, bits in zip(
        whole(numbers.encoded(values)), whole(numbers.encoded(values, filling)), whole(filling), strict=True
    ):
        free = max(0, abs(bare).bit_length() - SIGNIFICANT_BITS)
        assert abs(filled) == abs(bare) + bits % 2**free
        assert (filled < 0) == (bare < 0)


def test_words_that_a_range_needs():
    assert (DEFAULT.words, ONE_WORD.words, FixedPoint(1e12, 50).words) == (3, 1, 2)
    # 1024 takes a bit more than 1023 does: with the sign and room for 1024 sites that is 64 bits, or 65.
    assert (FixedPoint(1023.0, 43).words, FixedPoint(1024.0, 43).words) == (1, 2)
    assert DEFAULT.resolution == 2.0**-96


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**85, -(2.0**85)])
def test_what_is_beyond_the_range_is_refused(value):
    with pytest.raises(InputError, match="not finite, or beyond the"):
        DEFAULT.encoded(np.array([0.0, value]))


@given(st.lists(st.integers(-LARGEST_WHOLE, LARGEST_WHOLE), min_size=1, max_size=8))
def test_whole_numbers_are_exact(values):
    total = np.zeros((1, 1), dtype=np.uint64)
    for value in values:
        add(total, encoded_whole(np.array([value])))
    assert total[0].view(np.int64).tolist() == [sum(values)]


def test_a_carry_that_comes_of_a_carry_goes_on():
    """2^128 - 1 and 1: the second word wraps only when the first one's carry comes."""
    total = Accumulator((3, 1))
    for words in ([2**64 - 1, 2**64 - 1, 0], [1, 0, 0]):
        total.add(np.array(words, dtype=np.uint64)[:, None])
    assert total.value().ravel().tolist() == [0, 0, 1]


@pytest.mark.parametrize("bits", [513, -513])
def test_more_binary_places_than_words_have_are_refused(bits):
    assert FixedPoint(1e-300, 512).words == 1
    assert FixedPoint(1e300, -512).words == 8
    with pytest.raises(PolicyError, match="too far apart"):
        SecureSum(largest=1e-300 if bits > 0 else 1e300, resolution=2.0**-bits)


def test_whole_numbers_of_which_a_sum_could_wrap_are_refused():
    assert LARGEST_WHOLE == 2**53 - 1  # 1,024 of them are less than 2^63, and of one more they would not be
    encoded_whole(np.array([LARGEST_WHOLE, -LARGEST_WHOLE]))
    for value in (LARGEST_WHOLE + 1, -LARGEST_WHOLE - 1):
        with pytest.raises(InputError, match="whole number is beyond"):
            encoded_whole(np.array([value]))
    with pytest.raises(InputError, match="whole number is beyond"):
        encoded_whole(np.array([2**64 - 1], dtype=np.uint64))
