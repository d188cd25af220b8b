"""Balls that hold a majority, tables of what a minority can have moved, and values in two groups."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.medians.majority_ball import near_majority, near_majority_of_blocks, resilience, two_groups


def apart(points):
    return np.linalg.norm(points[:, None] - points, axis=2)


def blocks_of(distances, at_a_time=4):
    """Return a function that yields the distances of some values, a few rows at a time."""

    def blocks(rows):
        for start in range(0, len(rows), at_a_time):
            part = rows[start : start + at_a_time]
            yield part, distances[part], distances[part]

    return blocks


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_blocks_of_rows_and_equal_weights_make_no_difference(factor):
    points = np.random.default_rng(0).normal(size=(15, 3))
    points[:5] += 8.0
    distances = apart(points)
    near = near_majority(distances, np.full(15, 0.3), factor)
    np.testing.assert_array_equal(near_majority_of_blocks(blocks_of(distances), 15, factor), near)
    assert not near[:5].any()
    assert near.sum() >= 8


def test_a_majority_is_by_weight():
    distances = apart(np.array([[0.0], [0.1], [5.0]]))
    np.testing.assert_array_equal(near_majority(distances, np.ones(3), 1.0), [True, True, False])
    np.testing.assert_array_equal(near_majority(distances, np.array([1.0, 1.0, 3.0]), 1.0), [False, False, True])


def test_the_table_of_a_minority():
    """Four honest values on a line, and one that is far away; the result is their mean."""
    points = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    result = np.abs(points[:, 0] - 1.5)
    table = resilience(blocks_of(apart(points)), result, np.arange(5))
    assert table["malicious"].tolist() == [1, 2]
    assert table["radius"].tolist() == [2.0, 1.0]  # round 1 or 2: all but the far one, then three of them
    assert table["bound"].tolist() == [1.5, 1.5]
    assert len(resilience(blocks_of(apart(points[:2])), result[:2], np.arange(2))) == 0


def test_two_groups_of_nearly_equal_size():
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(10, 30))
    assert two_groups(apart(honest)) is None
    far = np.vstack([honest, rng.normal(size=(9, 30)) + 4.0])
    np.testing.assert_array_equal(two_groups(apart(far)), np.arange(19) >= 10)
    assert two_groups(apart(far[:13])) is None  # three of thirteen are no second group
    copies = np.vstack([honest, np.tile(honest[0], (7, 1))])  # seven copies of an honest value
    assert len(set(two_groups(apart(copies))[[0, *range(10, 17)]].tolist())) == 1
    assert two_groups(np.zeros((9, 9))) is None


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-2])
def test_copies_of_one_value_that_are_the_majority_are_a_group(noise):
    """Nine of nineteen repeat an honest one: ten are alike, and nine as far from them as from one another."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(19, 50))
    values[:9] = values[12] + noise * rng.normal(size=(9, 50))
    assert sorted(np.flatnonzero(two_groups(apart(values)))) == [9, 10, 11, 13, 14, 15, 16, 17, 18]
