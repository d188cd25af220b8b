"""Noise from a key: normal, repeatable, and unrelated to that of any other key."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedspan.privacy import normal
from fedspan.privacy.noise import _BLOCK


def test_numbers_are_normal():
    numbers = normal(b"a key", (400, 500)).ravel()
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert abs(numbers.mean()) < 5 / np.sqrt(len(numbers))
    assert abs(numbers.var() - 1) < 5 * np.sqrt(2 / len(numbers))
    assert abs((numbers**4).mean() - 3) < 5 * np.sqrt(96 / len(numbers))
    # neither neighbours, nor the two of a pair, know of one another
    half = len(numbers) // 2
    for a, b in [(numbers[:-1], numbers[1:]), (numbers[:half], numbers[half:])]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(half)
        assert abs(np.corrcoef(a**2, b**2)[0, 1]) < 5 / np.sqrt(half)


def test_keys_are_unrelated():
    all_ = np.array([normal(b"key %d" % i, (5000,)) for i in range(12)])
    apart = np.corrcoef(all_)[np.triu_indices(12, 1)]
    assert np.abs(apart).max() < 5 / np.sqrt(5000)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7,), (3, 5), (_BLOCK + 3,)])
def test_any_shape_and_the_same_again(shape):
    numbers = normal(b"k", shape)
    assert numbers.shape == shape
    assert np.isfinite(numbers).all()
    assert numbers.tobytes() == normal(b"k", shape).tobytes()


def test_blocks_differ():
    numbers = normal(b"k", (2 * _BLOCK,))
    assert not np.isin(numbers[:1000], numbers[_BLOCK:]).any()


def test_a_longer_key_is_another_key():
    assert not np.array_equal(normal(b"k", (4,)), normal(b"k\0", (4,)))
