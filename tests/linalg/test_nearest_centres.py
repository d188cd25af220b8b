"""Nearest centres, and means without their last bits."""

from __future__ import annotations

import numpy as np

from fedspan.linalg.kernels.nearest_centres import closest, rounded_mean, squared_apart


def test_a_rounded_mean_by_hand():
    """A deviation of 8 to 16 has the unit 2^(3 - 8) = 1 / 32; without one the mean stays as it is."""
    found = rounded_mean(np.array([1.03, 1.03, -0.99]), np.array([64.0, 0.0, 225.0]))
    assert found.tolist() == [33 / 32, 1.03, -1.0]


def test_squared_distances_from_the_own_centres_by_hand():
    X, centres = np.array([[0.0], [5.0]]), np.array([[[1.0], [4.0]], [[2.0], [9.0]]])
    own = np.array([[0, 0], [1, 1]], dtype=np.int32)
    np.testing.assert_array_equal(squared_apart(X, centres, own), [[1.0, 4.0], [1.0, 16.0]])


def test_the_closest_of_several_sets_of_centres_by_hand():
    X, centres = np.array([[0.0], [5.0]]), np.array([[[1.0], [4.0]], [[9.0], [-9.0]]])
    np.testing.assert_array_equal(closest(X, centres), [[0, 0], [1, 0]])


def test_of_equally_close_centres_the_first_counts_whatever_rounding_does():
    X = np.array([[0.1 + 0.2], [0.3]])
    np.testing.assert_array_equal(closest(X, np.array([[[0.0], [0.6]], [[0.6], [0.0]]])), [[0, 0], [0, 0]])
