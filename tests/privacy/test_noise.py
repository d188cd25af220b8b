"""Noise from a key: normal, repeatable, and unrelated to that of any other key."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedspan as fs
from fedspan.errors import InputError
from fedspan.privacy import normal, with_noise
from fedspan.privacy.noise import _BLOCK, LARGEST_MULTIPLIER
from fedspan.sums.noisy_moments import SENSITIVITY, local_noisy_sums


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


def test_the_last_bits_of_a_reply_exclude_no_exact_number():
    """Of a sum of two doubles they do: 60 replies with noise of 10^8 times the sensitivity gave an exact count."""
    fed = fs.LocalFederation([fs.Site("a", np.tile([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], (9, 1)))])
    bounds = {"center": np.zeros(2), "width": np.full(2, 4.0), "box": False}
    for multiplier in (0.3, 1.9e5, 1e6):
        reply = fed.ask(local_noisy_sums, multiplier=multiplier, sharers=1, colluding=0, **bounds)["a"]
        numbers = np.concatenate([reply["squares"], reply["sums"], [reply["rows"]]])
        step = SENSITIVITY / (1 / multiplier - np.sqrt(5) * 2.0**-40) * 2.0**-40
        steps = numbers / step
        np.testing.assert_allclose(steps, np.rint(steps), rtol=1e-15, atol=1e-3)


@pytest.mark.parametrize(("multiplier", "sharers"), [(2.0, 1), (1e5, 4)])
def test_noise_on_the_grid_has_the_deviation_that_is_charged(multiplier, sharers):
    found = with_noise(np.full(50_000, 7.5), b"k", sensitivity=3.0, multiplier=multiplier, sharers=sharers)
    deviation = 3.0 * multiplier / np.sqrt(sharers)
    assert found.std() == pytest.approx(deviation, rel=0.02)
    assert abs(found.mean() - 7.5) < 5 * deviation / np.sqrt(len(found))
    # Whatever numbers a row moves, rounding included, it moves them by no more than the multiplier says.
    moved = with_noise(np.full(50_000, 7.5) + 3.0 / np.sqrt(50_000), b"k", sensitivity=3.0, multiplier=multiplier)
    same = with_noise(np.full(50_000, 7.5), b"k", sensitivity=3.0, multiplier=multiplier)
    whole = 3.0 / (1 / multiplier - np.sqrt(50_000) * 2.0**-40)
    assert np.linalg.norm(moved - same) <= whole / multiplier * (1 + 1e-9)


def test_noise_that_has_no_grid_is_refused():
    for sensitivity, multiplier in ((1.0, 2 * LARGEST_MULTIPLIER), (1e-300, 1.0), (1e300, 1.0)):
        with pytest.raises(InputError, match="can't be added"):
            with_noise(np.ones(3), b"k", sensitivity=sensitivity, multiplier=multiplier)
