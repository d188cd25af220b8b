"""The certificate by itself: true for any point, any dual vectors, and tight at the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg import geometric_median
from fedspan.linalg.medians.median_certificate import cluster_gap_bound, gap_bound, reach, rounding
from tests.linalg.long_double import distances, excess

seeds = st.integers(0, 2**32)


def some_points(rng):
    L, d = rng.integers(2, 8), rng.integers(1, 5)
    return rng.normal(size=(L, d)) * 10.0 ** rng.integers(-3, 4, size=(L, 1)), rng.uniform(0.1, 2.0, size=L)


def test_reach_by_hand():
    # all within 1, hull; then two of three at 1: 2 (1 + 1) / (4 - 3)
    assert reach(np.array([1.0, 1.0, 1.0]), np.ones(3)) == 1.0
    assert reach(np.array([1.0, 50.0, 1.0]), np.ones(3)) == 4.0
    assert reach(np.array([0.0, 0.0, 7.0]), np.ones(3)) == 0.0


def test_gap_bound_by_hand():
    # points -1 and 1 with weights 1 and 3, seen from 0: the pull is 2, the median 1 is at distance 1, the gap 2
    ones = np.ones(2)
    weights = np.array([1.0, 3.0])
    gap = gap_bound(weights, (ones, ones), (weights, weights), 2.0, np.zeros(2, dtype=bool))
    np.testing.assert_allclose(gap, 2.0, rtol=1e-5)
    # seen from the point with weight 3, which is 2 from the other: its weight holds any pull of 1
    at = (np.array([2.0, 0.0]),) * 2
    assert gap_bound(weights, at, (np.array([1.0, 0.0]),) * 2, 1.0, np.array([False, True])) == 0.0


def test_gap_bound_of_a_point_that_nearly_coincides_and_is_then_rounded_by_hand():
    # the pull of 3.5 is held by a weight of 3; within reach 3 and a shift of 1/4 the rest of 0.5 costs 1.625, the bend
    # of the first point's distance 2 / 128, and the second point, half away from where it was measured, 2 * 3 * 0.75
    weights, coincide = np.array([2.0, 3.0]), np.array([False, True])
    distance = np.array([4.0, 0.0]), np.array([4.0, 0.5])
    exact = (np.array([2.0, 9.0]),) * 2  # what coincides has no dual vector
    gap = gap_bound(weights, distance, exact, 3.5, coincide, 0.25)
    assert gap == pytest.approx((1.625 + 2 / 128 + 4.5) * (1 + 2.0**-20), rel=1e-13)
    # and a dual vector that is known to be between 1.5 and 2.25 may be off by 0.5
    rough = np.array([1.5, 9.0]), np.array([2.25, 9.0])
    gap = gap_bound(weights, distance, rough, 3.5, coincide, 0.25)
    assert gap == pytest.approx((3.25 + 2 / 128 + 4.5) * (1 + 2.0**-20), rel=1e-13)
    # one that may be where z' is, and is not said to be: the pull of 0.5 over the distance of at most 0.5
    near = np.zeros(1), np.full(1, 0.5)
    alone = gap_bound(np.ones(1), near, (np.ones(1),) * 2, 0.5, np.zeros(1, dtype=bool))
    assert alone == pytest.approx(0.25 * (1 + 2.0**-20), rel=1e-13)
    assert gap_bound(weights, distance, exact, 2.5, coincide) == pytest.approx(3.0 * (1 + 2.0**-20), rel=1e-13)


def test_cluster_gap_bound_by_hand():
    weights, high, cluster = np.array([2.0, 2.0, 1.0]), np.array([1.0, 0.5, 9.0]), np.array([True, True, False])
    exact = (weights, weights)

    def bound(residual, pull, dual=exact):
        return cluster_gap_bound(weights, high, dual, residual, cluster, pull) / (1 + 2.0**-20)

    assert bound(0.25, 1.0) == pytest.approx(6.0 * 0.25 / 2.75, rel=1e-13)  # of the weight 4 there are 4 - 1 - 1/4 left
    rough = (np.array([2.0, 2.0, 0.75]), np.array([2.0, 2.0, 1.5]))
    assert bound(0.25, 1.0, rough) == pytest.approx(6.0 * 0.75 / 1.75, rel=1e-13)
    assert bound(1.0, 2.5) == pytest.approx(6.0, rel=1e-13)  # never more than all of it
    for left, infinite in ((0.0, True), (4e-9, True), (6e-9, False)):  # less than 1e-9 of the weight may be none
        assert (bound(0.25, 3.75 - left) == np.inf) is infinite


@given(seeds)
def test_every_minimiser_is_within_reach(seed):
    rng = np.random.default_rng(seed)
    points, weights = some_points(rng)
    z = points[0] + rng.normal(size=points.shape[1])
    radius = reach(distances(points, z).astype(float), weights)
    median = geometric_median(points, weights).point
    assert np.linalg.norm(median - z) <= radius * (1 + 1e-9)


@given(seeds, st.sampled_from([0.0, 1e-9, 1e-3, 0.5]), st.sampled_from([0.0, 1e-12, 1e-3]))
def test_true_for_any_point_and_any_dual_vectors(seed, noise, shift):
    rng = np.random.default_rng(seed)
    points, weights = some_points(rng)
    near = rng.integers(len(points))
    z = points[near] + rng.normal(size=points.shape[1]) * 10.0 ** rng.integers(-9, 2)
    away = distances(points, z).astype(float)
    pulls = weights / away * (1 + noise * rng.uniform(-1, 1, size=len(points)))
    coincide = np.arange(len(points)) == near if rng.random() < 0.5 else np.zeros(len(points), dtype=bool)
    pulls[coincide] = 0.0
    residual = float(np.linalg.norm(pulls @ (points - z)))
    bounds = away * (1 - 1e-12), away * (1 + 1e-12)
    gap = gap_bound(weights, bounds, (pulls * bounds[0], pulls * bounds[1]), residual, coincide, shift)
    direction = rng.normal(size=points.shape[1])
    moved = z + shift * direction / np.linalg.norm(direction) * (1 - 1e-9)
    assert excess(points, weights, moved) <= gap + 1e-12 * float(weights @ away)


@given(seeds, st.sampled_from([1e-9, 1e-3, 0.1]))
def test_true_for_a_cluster_of_which_the_directions_are_badly_known(seed, noise):
    rng = np.random.default_rng(seed)
    inside, outside, d = rng.integers(1, 5), rng.integers(1, 5), rng.integers(1, 4)
    spread = 10.0 ** rng.integers(-9, 0)
    points = np.vstack([spread * rng.normal(size=(inside, d)), rng.normal(size=(outside, d))])
    weights = rng.uniform(0.5, 1.0, size=len(points))
    z = geometric_median(points, weights).point + spread * noise * rng.normal(size=d)
    away = distances(points, z).astype(float)
    pulls = weights / np.maximum(away, 1e-30)
    bounds = away * (1 - 1e-12), away * (1 + 1e-12)
    dual = pulls * bounds[0], pulls * bounds[1]
    cluster = np.arange(len(points)) < inside
    pull = np.linalg.norm(pulls[~cluster] @ (points - z)[~cluster])
    gap = cluster_gap_bound(weights, bounds[1], dual, float(np.linalg.norm(pulls @ (points - z))), cluster, float(pull))
    assert excess(points, weights, z) <= gap + 1e-15
    if weights[cluster].sum() > 1.5 * pull and noise < 1e-2 and away.min() > 0.1 * spread:
        assert gap <= 100 * noise * spread * len(points)  # and of the size of the cluster, not of the whole


def test_rounding_by_hand():
    assert rounding(2**52) == 1.0  # a half over one minus a half
    assert rounding(1) > 2.0**-53


def test_rounding_bounds_a_long_sum_in_single_steps():
    values = np.random.default_rng(0).normal(size=3000).astype(np.float64)
    total = 0.0
    for value in values:
        total += value * value
    exact = (values.astype(np.longdouble) ** 2).sum()
    assert 0 < abs(total - exact) <= rounding(3000) * exact
