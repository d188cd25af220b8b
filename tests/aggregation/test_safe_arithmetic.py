"""Means, norms and distances of numbers that are huge, tiny, or far from zero."""

from __future__ import annotations

import numpy as np

from fedspan.aggregation.safe_arithmetic import distances, lower_median, mixture, norms, shrunk


def test_a_value_without_a_share_costs_the_others_no_digits() -> None:
    """Sums of huge values are made of shrunk ones: not for the sake of one that has no part in the mean."""
    tiny = 5e-324
    values = np.array([[1e308], [3 * tiny], [tiny]])
    assert mixture(values, np.array([[0.0], [1.0], [1.0]])).tolist() == [2 * tiny]


def test_a_mean_of_huge_values_does_not_overflow():
    points, shares = np.array([[0.0], [1e308], [1.7e308]]), np.array([[0.0], [1.0], [1.0]])
    np.testing.assert_allclose(mixture(points, shares), [1.35e308])


def test_only_huge_numbers_are_shrunk():
    points, scale = shrunk(np.array([1.0, 2.0]))
    assert (points.tolist(), scale) == ([1.0, 2.0], 1.0)
    points, scale = shrunk(np.array([1.0, 2.0**1000]))
    assert (points.tolist(), scale) == ([2.0**-40, 2.0**960], 2.0**-40)


def test_norms_where_squares_overflow_or_vanish():
    np.testing.assert_allclose(norms(np.array([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200]])), [5.0, 5e200, 5e-200])
    assert norms(np.array([[1.7e308, 1.7e308], [0.0, 0.0]])).tolist() == [np.inf, 0.0]


def test_distances_keep_their_digits_beside_a_large_offset():
    assert distances(np.array([[1e9, 0.0], [1e9 + 3.0, 4.0]])).tolist() == [[0.0, 5.0], [5.0, 0.0]]


def test_the_lower_median_by_hand():
    assert lower_median(np.array([4.0, 1.0, 3.0, 2.0])) == 2.0
    assert lower_median(np.array([1.0, 5.0]), np.array([1.0, 3.0])) == 5.0
