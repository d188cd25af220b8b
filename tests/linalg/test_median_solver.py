"""The solver of geometric medians on many points."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg import geometric_median
from fedspan.linalg.medians import median_solver


def scattered(rng):
    return rng.normal(size=(300, 4)), np.ones(300)


def at_a_heavy_point(rng):
    weights = np.ones(300)
    weights[17] = 250.0
    return rng.normal(size=(300, 4)), weights


def mostly_one_point(rng):
    return np.where(np.arange(300)[:, None] < 160, 0.25, rng.normal(size=(300, 4))), np.ones(300)


def on_a_grid(rng):
    return rng.integers(-2, 3, size=(301, 2)).astype(float), np.ones(301)


def on_a_line(rng):
    return np.sort(rng.normal(size=(300, 1)), axis=0), np.ones(300)


def far_and_near(rng):
    return np.r_[rng.normal(size=(200, 3)), np.full((100, 3), 1e9)], np.ones(300)


@pytest.mark.parametrize("points", [scattered, at_a_heavy_point, mostly_one_point, on_a_grid, on_a_line, far_and_near])
def test_the_median_of_many_points_is_the_same_without_comparing_all_of_them(monkeypatch, points):
    X, weights = points(np.random.default_rng(11))
    expected = geometric_median(X, weights)
    monkeypatch.setattr(median_solver, "MANY", 64)
    monkeypatch.setattr(median_solver, "_best_vertex", None)
    found = geometric_median(X, weights)
    np.testing.assert_allclose(found.point, expected.point, atol=1e-11)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-11)
    assert found.gap <= max(1e-10 * found.distances.sum(), expected.gap)


def test_of_many_points_the_search_begins_next_to_the_median():
    X = np.array([[0.0], [10.0], [11.0], [12.5], [60.0]])
    assert median_solver._vertex_near_median(X, np.ones(5), 0.0) == 2
    assert median_solver._vertex_near_median(X, np.array([5.0, 1.0, 1.0, 1.0, 1.0]), 0.0) == 0


def test_isometric_coordinates_keep_the_digits_of_short_points():
    X = median_solver.isometric_coordinates(np.array([[4.0, 0.0], [0.0, 1e-16]]))
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), [2.0, 1e-8], rtol=1e-14)
