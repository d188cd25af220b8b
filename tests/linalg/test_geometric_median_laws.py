"""The geometric median: laws on generated points, and a certificate that is true to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg import geometric_median
from tests.linalg.long_double import LONG, distances, excess, objective

EPS = 2.0**-52


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
