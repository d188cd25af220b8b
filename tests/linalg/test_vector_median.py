"""The geometric median: cases by hand, ties, refusals, laws on generated points, and a certificate that is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg import geometric_median
from fedspan.linalg.medians import centred_points, vector_median
from tests.linalg.long_double import LONG, distances, excess, objective

EPS = 2.0**-52


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
        ([0, 2, 0, 2], 5.0),  # points without weight do not count: midpoint of 1 and 9
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
    assert centred_points.central_vector(points, np.ones(7)) == 0
    result = geometric_median(points)
    honest = np.delete(distances(points, result.point), 0)
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


def test_a_gap_is_judged_by_the_points_that_have_a_weight():
    """The reach of one point at distance 1 is 1; a second one of weight 0, far away, would make it 2."""
    weights, distances = np.array([3.0, 0.0]), np.array([1.0, 1e9])
    for gap, good in ((3.0 * vector_median.GOOD_GAP, True), (3.0001 * vector_median.GOOD_GAP, False)):
        found = vector_median.GeometricMedianResult(np.zeros(1), weights / 3.0, distances, gap)
        assert vector_median._is_good(found, weights) is good


# Laws on generated points.


@st.composite
def points_and_weights(draw, largest_exponent=12):
    """A few vectors: near and far, repeated, nearly repeated, on a line, with weights that may be 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    L, d = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    points = rng.integers(-9, 10, size=(L, d)).astype(float) if draw(st.booleans()) else rng.normal(size=(L, d))
    if draw(st.booleans()):
        points = points[:1] * rng.normal(size=(L, 1)) + 10.0 ** draw(st.integers(-15, 0)) * points  # nearly a line
    points *= 10.0 ** rng.integers(-largest_exponent, largest_exponent + 1, size=(L, 1)) if draw(st.booleans()) else 1.0
    for i in range(1, L):
        if draw(st.integers(0, 3)) == 0:
            points[i] = points[i - 1] + draw(st.sampled_from([0.0, 1e-15, 1e-8])) * rng.normal(size=d)
    points += draw(st.sampled_from([0.0, 0.0, 1.0, 1e6]))
    weights = np.ones(L)
    if draw(st.booleans()):
        weights = rng.integers(0, 4, size=L).astype(float)
        weights[rng.integers(L)] = 1.0
    elif draw(st.booleans()):
        weights = rng.uniform(0.01, 1.0, size=L) ** 4
    return points, weights


def assert_true_and_small(points, weights, result):
    f = objective(points, weights, result.point)
    assert excess(points, weights, result.point) <= result.gap + 1e-18 * f
    # rounding the point to float64 moves it by so much, and f by no more than this
    rounding = weights.sum() * EPS * np.linalg.norm(result.point)
    assert result.gap <= 1e-10 * float(f) + 2.0 * rounding


@given(points_and_weights())
def test_gap_is_true_and_small(case):
    points, weights = case
    assert_true_and_small(points, weights, geometric_median(points, weights))


@given(points_and_weights(largest_exponent=140))
def test_gap_is_true_and_small_at_any_magnitude(case):
    points, weights = case
    assert_true_and_small(points, weights, geometric_median(points, weights))


@given(points_and_weights())
def test_weights_and_distances_belong_to_the_point(case):
    points, weights = case
    result = geometric_median(points, weights)
    assert (result.weights >= 0).all()
    assert (result.weights[weights == 0] == 0).all()
    assert abs(result.weights.sum() - 1) <= 1e-14
    made = (result.weights.astype(LONG)[:, None] * points.astype(LONG)).sum(axis=0)
    # weights are given to 16 digits, so that a far point of tiny weight may move the sum by that much
    assert np.abs(made - result.point).max() <= 20 * EPS * (result.weights @ np.abs(points)).max()
    away = distances(points, result.point).astype(float)
    np.testing.assert_allclose(result.distances, away, rtol=1e-12, atol=2 * EPS * np.linalg.norm(result.point))


def assert_same_value(points, weights, first, second, slack=0.0):
    """Two candidates for the median of the same points: neither is better by more than was certified."""
    f = objective(points, weights, first)
    difference = abs(f - objective(points, weights, second))
    norm = float(np.abs(points).max()) * np.sqrt(points.size)
    assert difference <= slack + 40 * EPS * weights.sum() * norm


@given(points_and_weights(largest_exponent=3), st.integers(-1000, 1000))
def test_translation(case, shift):
    points, weights = np.round(case[0]), case[1]  # integers: the shift is exact
    here, there = geometric_median(points, weights), geometric_median(points + shift, weights)
    assert_same_value(points, weights, here.point, there.point - shift, here.gap + there.gap)


@given(points_and_weights(), st.integers(-30, 30).map(lambda half: 2 * half))
def test_scaling_by_a_power_of_four_is_exact(case, power):  # of which the square root is exact, too
    points, weights = case
    here, there = geometric_median(points, weights), geometric_median(np.ldexp(points, power), weights)
    assert np.array_equal(np.ldexp(here.point, power), there.point)
    assert np.array_equal(here.weights, there.weights)
    assert np.ldexp(here.gap, power) == there.gap


@given(points_and_weights(), st.integers(-60, 60))
def test_scaling_the_weights_scales_the_gap_alone(case, power):
    points, weights = case
    here, there = geometric_median(points, weights), geometric_median(points, np.ldexp(weights, power))
    assert np.array_equal(here.point, there.point)
    assert np.ldexp(here.gap, power) == there.gap


@given(points_and_weights(largest_exponent=3), st.floats(0.01, 100))
def test_scaling(case, factor):
    points, weights = case
    here, there = geometric_median(points, weights), geometric_median(factor * points, weights)
    assert_same_value(points, weights, here.point, there.point / factor, here.gap + there.gap / factor)


@given(points_and_weights(largest_exponent=3), st.randoms(use_true_random=False))
def test_order_of_the_points(case, random):
    points, weights = case
    order = np.array(random.sample(range(len(points)), len(points)))
    here, there = geometric_median(points, weights), geometric_median(points[order], weights[order])
    assert_same_value(points, weights, here.point, there.point, here.gap + there.gap)


@given(points_and_weights(largest_exponent=3), st.integers(0, 2**32))
def test_rotation(case, seed):
    points, weights = case
    d = points.shape[1]
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    here, there = geometric_median(points, weights), geometric_median(points @ Q, weights)
    assert_same_value(points, weights, here.point, there.point @ Q.T, here.gap + there.gap)


@given(points_and_weights(largest_exponent=3))
def test_integer_weights_are_repetitions(case):
    points, weights = case[0], np.ceil(case[1])
    repeated = np.repeat(points, weights.astype(int), axis=0)
    here, there = geometric_median(points, weights), geometric_median(repeated)
    assert_same_value(points, weights, here.point, there.point, here.gap + there.gap)


@pytest.mark.parametrize(("L", "d"), [(5, 2), (7, 40), (20, 3), (30, 300)])
def test_points_in_general_position_move_with_the_world(L, d):
    rng = np.random.default_rng(L)
    points, weights = rng.normal(size=(L, d)), rng.uniform(1, 2, size=L)
    Q, order, shift = np.linalg.qr(rng.normal(size=(d, d)))[0], rng.permutation(L), rng.normal(size=d)
    here = geometric_median(points, weights)
    there = geometric_median((3.7 * points @ Q + shift)[order], weights[order])
    np.testing.assert_allclose(there.point, 3.7 * here.point @ Q + shift, atol=1e-11)
    np.testing.assert_allclose(there.weights, here.weights[order], atol=1e-11)
    np.testing.assert_allclose(there.distances, 3.7 * here.distances[order], rtol=1e-12)
    np.testing.assert_allclose(there.gap, 3.7 * here.gap, rtol=0.2)


def cluster(rng, L, d, spread):
    return rng.normal(size=d) + spread * rng.normal(size=(L, d))


@pytest.mark.parametrize("d", [3, 30, 3000])
@pytest.mark.parametrize("far", [1.0, 1e8, 1e15, 1e150, 1e290])
@pytest.mark.parametrize("spread", [1.0, 1e-8])
def test_outliers_cost_the_cluster_no_digits(spread, far, d):
    rng = np.random.default_rng(7)
    points = np.vstack([cluster(rng, 6, d, spread), far * rng.normal(size=(5, d))])
    result = geometric_median(points)
    true = distances(points, result.point)
    np.testing.assert_allclose(result.distances, true.astype(float), rtol=1e-12)
    honest = float(true[:6].sum())
    if d == 3:  # long double is slow
        assert excess(points, np.ones(11), result.point) <= result.gap
    # as small as if the outliers were not there, although the objective is dominated by them
    assert result.gap <= 1e-10 * honest + 11 * EPS**2 * np.linalg.norm(result.point) ** 2 / honest


@pytest.mark.parametrize("share", [0.3, 0.49])
def test_sign_flipped_copies_of_a_cluster(share):
    rng = np.random.default_rng(8)
    points = cluster(rng, 100, 50, 1e-8)
    points[: int(share * 100)] *= -1
    result = geometric_median(points)
    np.testing.assert_allclose(result.distances, distances(points, result.point).astype(float), rtol=1e-12)
    assert result.gap <= 1e-10 * result.distances[50:].sum()


@pytest.mark.parametrize("angle", [1e-2, 1e-5, 1e-8, 1e-11, 1e-13, 1e-16, 0.0])
def test_optimum_just_beside_a_data_point(angle):
    # at an angle of 120 degrees the corner is the median; just below, the median is just beside it
    turn = 2 * np.pi / 3 - angle
    points = np.array([[0.0, 0.0], [1.0, 0.0], [np.cos(turn), np.sin(turn)]]) + 0.3
    result = geometric_median(points)
    assert excess(points, np.ones(3), result.point) <= result.gap <= 1e-13
    assert abs(result.distances[0] - angle / np.sqrt(3)) <= 0.5 * angle**2 + 1e-15


def test_nothing_is_lost_to_underflow():
    tiny = 1e-170
    points = np.array([[1.0, 0.0], [1.0, tiny], [1.0, 3 * tiny]])
    assert np.array_equal(geometric_median(points).point, points[1])
    triangle = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]) * 1e-200
    np.testing.assert_allclose(geometric_median(triangle).point, [1e-200, 1e-200 / np.sqrt(3)], rtol=1e-13)


@pytest.mark.parametrize("apart", [0.0, 1e-15, 1e-12, 1e-6])
def test_two_against_two(apart):
    # each pair holds exactly half of the weight, so that f is nearly flat on the line between them
    rng = np.random.default_rng(10)
    for _ in range(30):
        points = np.repeat(rng.integers(-9, 10, size=(2, 6)), 2, axis=0) + apart * rng.normal(size=(4, 6))
        points = rng.permutation(points)
        result = geometric_median(points)
        assert_true_and_small(points, np.ones(4), result)


@pytest.mark.parametrize("seed", range(10))
def test_two_against_two_at_magnitudes_that_cannot_be_squared_together(seed):
    rng = np.random.default_rng(seed)
    far = rng.normal(size=(2, 3)) * [[1e105], [1e107]]
    near = rng.normal(size=(3, 3)) * [[1e-126], [1e-96], [10.0 ** rng.integers(-60, -50)]]
    points, weights = np.vstack([near, far]), np.array([3.0, 1.0, 1.0, 2.0, 3.0])
    result = geometric_median(points, weights)
    assert excess(points, weights, result.point) <= result.gap <= 100 * np.abs(near).max()
    np.testing.assert_allclose(result.distances, distances(points, result.point).astype(float), rtol=1e-12)
