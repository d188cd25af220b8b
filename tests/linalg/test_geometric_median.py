"""The geometric median: cases computed by hand, rules for ties, and what is refused."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from fedspan.errors import InputError
from fedspan.linalg import geometric_median
from fedspan.linalg.medians import centred_points as centred
from tests.linalg import long_double


def close(actual, expected, tolerance=1e-13):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def test_fermat_point_of_a_triangle():
    # seen from (1, 1/sqrt 3) the sides of this triangle subtend 120 degrees each
    result = geometric_median([[0, 0], [2, 0], [1, 1]])
    close(result.point, [1, 1 / np.sqrt(3)])
    close(result.distances, [2 / np.sqrt(3), 2 / np.sqrt(3), 1 - 1 / np.sqrt(3)])
    inverse = 1 / result.distances
    close(result.weights, inverse / inverse.sum())
    assert 0 < result.gap < 1e-13


def test_convex_quadrilateral_has_its_median_where_the_diagonals_meet():
    result = geometric_median([[0, 0], [4, 0], [5, 3], [0, 2]])
    close(result.point, [20 / 11, 12 / 11])


def test_point_inside_a_triangle_is_its_median_with_the_corners_exactly():
    points = np.array([[0.0, 0.0], [3.0, 0.1], [0.3, 2.9], [1.0, 0.9]])
    result = geometric_median(points)
    assert np.array_equal(result.point, points[3])
    assert np.array_equal(result.weights, [0, 0, 0, 1])
    assert result.gap == 0.0


def test_obtuse_triangle_has_its_median_at_the_corner():
    points = np.array([[0.1, 0.2], [1.0, 0.3], [-2.0, 0.7]])
    result = geometric_median(points)
    assert np.array_equal(result.point, points[0])
    assert result.gap == 0.0


@pytest.mark.parametrize(
    ("weights", "median"),
    [
        ([1, 2, 3, 1], 5.0),  # half of 7 is passed at the third
        ([1, 2, 1, 5], 9.0),  # the last has more than half
        ([1, 2, 2, 1], 3.0),  # half exactly at the second: midpoint of 1 and 5
        ([3, 1, 1, 1], 0.5),  # likewise, midpoint of 0 and 1
        ([0, 2, 0, 2], 5.0),  # no weight, no say: midpoint of 1 and 9
        ([1e-300, 2e-300, 3e-300, 1e-300], 5.0),
        ([1e300, 2e300, 3e300, 1e300], 5.0),
    ],
)
def test_weighted_median_on_a_line(weights, median):
    close(geometric_median([[0.0], [1.0], [5.0], [9.0]], weights).point, [median])


def test_majority_of_the_weight_is_the_median_whatever_the_others_are():
    points = np.array([[0.1, -0.7, 3.0], [1e8, 1.0, 2.0], [-1e150, 0.0, 1.0], [5.0, 1e-9, 4.0]])
    result = geometric_median(points, [3.1, 1.0, 1.0, 1.0])
    assert np.array_equal(result.point, points[0])
    assert result.gap == 0.0


def test_one_point_is_its_own_median():
    result = geometric_median([[3.0, -4.0]])
    assert np.array_equal(result.point, [3.0, -4.0])
    assert np.array_equal(result.weights, [1.0])
    assert np.array_equal(result.distances, [0.0])
    assert result.gap == 0.0


def test_two_points_midpoint_if_equally_heavy_else_the_heavier():
    points = [[0.0, 1.0], [4.0, -1.0]]
    close(geometric_median(points).point, [2, 0])
    assert np.array_equal(geometric_median(points, [1.0, 1.001]).point, [4.0, -1.0])
    assert np.array_equal(geometric_median(points, [1.001, 1.0]).point, [0.0, 1.0])


@pytest.mark.parametrize("dimension", [2, 3, 500])
def test_even_number_of_points_on_a_line_midpoint_of_the_middle_two(dimension):
    direction = np.random.default_rng(5).normal(size=dimension)
    result = geometric_median(np.outer([10.0, 0.0, 3.0, 1.0], direction))
    close(result.point, 2.0 * direction, 1e-12)
    close(result.distances / np.linalg.norm(direction), [8, 2, 1, 1], 1e-12)


def test_all_points_equal():
    result = geometric_median(np.full((5, 3), 0.1))
    assert np.array_equal(result.point, [0.1, 0.1, 0.1])
    assert np.array_equal(result.distances, np.zeros(5))
    assert result.gap == 0.0


def test_duplicates_share_their_weight_in_proportion():
    result = geometric_median([[0.1, 0.3], [0.1, 0.3], [1.0, 0.0], [0.0, 5.0]], [1.0, 3.0, 1.0, 1.0])
    assert np.array_equal(result.point, [0.1, 0.3])
    assert np.array_equal(result.weights, [0.25, 0.75, 0.0, 0.0])


def test_zero_weights_have_a_distance_and_no_say():
    points = np.random.default_rng(0).normal(size=(6, 4))
    without = geometric_median(points[1:5], [1, 2, 3, 4])
    result = geometric_median(points, [0, 1, 2, 3, 4, 0])
    close(result.point, without.point)
    assert result.weights[0] == result.weights[5] == 0.0
    close(result.distances, np.linalg.norm(points - result.point, axis=1))


def test_weights_make_the_point_and_sum_to_one():
    points = np.random.default_rng(1).normal(size=(9, 40))
    result = geometric_median(points, np.arange(1, 10))
    close(result.weights.sum(), 1.0, 1e-15)
    assert (result.weights > 0).all()
    close(result.weights @ points, result.point)


def test_float32_is_accumulated_in_float64():
    points = np.random.default_rng(2).normal(size=(7, 3000)).astype(np.float32) + np.float32(1000)
    single, double = geometric_median(points), geometric_median(points.astype(np.float64))
    assert single.point.dtype == np.float64
    assert np.array_equal(single.point, double.point)
    assert single.gap == double.gap <= 1e-10 * double.distances.sum()


def test_integers_and_lists_and_strides_are_taken():
    points = np.arange(24).reshape(4, 6) ** 2
    expected = geometric_median(points.astype(float)).point
    assert np.array_equal(geometric_median(points.tolist()).point, expected)
    assert np.array_equal(geometric_median(np.asfortranarray(points)).point, expected)
    assert np.array_equal(geometric_median(np.repeat(points, 2, axis=1)[:, ::2]).point, expected)


def test_input_is_left_alone():
    points, weights = np.random.default_rng(3).normal(size=(5, 7)), np.arange(1.0, 6.0)
    points.flags.writeable = weights.flags.writeable = False
    before = points.copy(), weights.copy()
    geometric_median(points, weights)
    assert np.array_equal(points, before[0])
    assert np.array_equal(weights, before[1])


@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        ([[1.0, np.nan]], None, "points must be finite"),
        ([[1.0], [np.inf], [2.0]], None, "points must be finite"),
        (np.array([[1.0], [-np.inf], [2.0]], dtype=np.float32), None, "points must be finite"),
        ([[-2e300], [2e300], [0.0]], None, "differ by less than 1e\\+300"),
        ([[1e301], [0.0]], None, "differ by less than 1e\\+300"),
        (np.zeros((0, 3)), None, r"not of shape \(0, 3\)"),
        (np.zeros((3, 0)), None, r"not of shape \(3, 0\)"),
        ([1.0, 2.0], None, r"not of shape \(2,\)"),
        (np.zeros((2, 2, 2)), None, r"not of shape \(2, 2, 2\)"),
        ([[1.0, 2.0], [3.0]], None, "rows are not all of one length"),
        ([["a"]], None, "real numbers"),
        ([[1j]], None, "real numbers"),
        ([[1.0], [2.0]], [1.0, -1.0], "not negative"),
        ([[1.0], [2.0]], [0.0, 0.0], "at least one of them positive"),
        ([[1.0], [2.0]], [1.0, np.nan], "weights must be finite"),
        ([[1.0], [2.0]], [1.0], r"each of the 2 points, not shape \(1,\)"),
    ],
)
def test_bad_input_gets_one_sentence(points, weights, message):
    with pytest.raises(InputError, match=message) as caught:
        geometric_median(points, weights)
    assert "\n" not in str(caught.value)


def test_a_reference_far_from_the_median_is_replaced():
    # All vectors are equal in the coordinates that the first reference is chosen by, so the first vector is taken. It
    # is far away, and seen from there the others, which agree to 1e-6, are one point.
    rng = np.random.default_rng(4)
    points = np.zeros((7, 4096))
    unseen = np.arange(4096) % 4 != 0
    points[1:, unseen] = 1e-6 * rng.normal(size=(6, unseen.sum()))
    points[0, unseen] = 1e8
    centred = importlib.import_module("fedspan.linalg.medians.centred_points")
    assert centred.central_vector(points, np.ones(7)) == 0
    result = geometric_median(points)
    honest = np.delete(long_double.distances(points, result.point), 0)
    np.testing.assert_allclose(result.distances[1:], honest.astype(float), rtol=1e-12)
    assert result.gap <= 1e-10 * float(honest.sum())


def test_far_points_do_not_excuse_a_median_that_is_not_quite_right():
    # 3 of 7 are far to the left, so the median is the left one of the two near points, 1e-8 apart
    points = np.array([[-1e13], [-1e13], [1e-5], [1e-5 - 1e-8]])
    result = geometric_median(points, [2.0, 1.0, 3.0, 1.0])
    assert np.array_equal(result.point, points[3])
    assert np.array_equal(result.weights, [0, 0, 0, 1])
    assert result.gap == 0.0


def test_neighbouring_floats_have_one_of_themselves_as_their_median():
    points = np.array([[1.0], [1.0 + 2.0**-52]])  # float64 has nothing in between
    result = geometric_median(points)
    assert result.point in points
    assert result.gap <= 1e-10 * 2.0**-52


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
    fermat = importlib.import_module("fedspan.linalg.medians.median_solver")
    monkeypatch.setattr(fermat, "MANY", 64)
    monkeypatch.setattr(fermat, "_best_vertex", None)
    found = geometric_median(X, weights)
    np.testing.assert_allclose(found.point, expected.point, atol=1e-11)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-11)
    assert found.gap <= max(1e-10 * found.distances.sum(), expected.gap)


def test_a_gap_is_judged_by_those_who_have_a_weight():
    """The reach of one point at distance 1 is 1; a second one of weight 0, far away, would make it 2."""
    module = importlib.import_module("fedspan.linalg.medians.geometric_median")
    weights, distances = np.array([3.0, 0.0]), np.array([1.0, 1e9])
    for gap, good in ((3.0 * module.GOOD_GAP, True), (3.0001 * module.GOOD_GAP, False)):
        found = module.GeometricMedianResult(np.zeros(1), weights / 3.0, distances, gap)
        assert module._is_good(found, weights) is good


def test_of_many_points_the_search_begins_next_to_the_median():
    from fedspan.linalg.medians.median_solver import _vertex_near_median

    X = np.array([[0.0], [10.0], [11.0], [12.5], [60.0]])
    assert _vertex_near_median(X, np.ones(5), 0.0) == 2
    assert _vertex_near_median(X, np.array([5.0, 1.0, 1.0, 1.0, 1.0]), 0.0) == 0


def test_coordinates_about_a_reference_by_hand():
    """The median is within 1.5 of the first: in units of 2, and what is more than 2^100 times as far is pulled in."""
    points = np.array([[0.0], [1.5], [2.0**50], [2.0**400]])
    frame = centred.frame_about(points, np.array([1.0, 3.0, 0.0, 0.0]), 0)
    assert frame.row_scale.tolist() == [0.5, 0.5, 2.0**-51, 2.0**-401]
    assert frame.stretch.tolist() == [1.0, 1.0, 2.0**50, 2.0**100]
    assert frame.shrink.tolist() == [1.0, 1.0, 1.0, 2.0**-300]
    np.testing.assert_array_equal(np.abs(frame.coordinates).ravel(), [0.0, 0.75, 2.0**49, 2.0**99])
    near = centred.frame_about(points[:3], np.ones(3), 1)  # where nothing is far or tiny all is as it was
    assert near.coordinates.ravel().tolist() == [-1.5, 0.0, 2.0**50 - 1.5]
    assert {*near.row_scale, *near.stretch, *near.shrink} == {1.0}
