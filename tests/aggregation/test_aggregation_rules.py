"""Each rule against a case done by hand and against another way to compute it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtri

from fedspan.aggregation import (
    ClipNorm,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    Mean,
    MedianOfMeans,
    MultiKrum,
    SpectralFilter,
    TrimmedMean,
    spectral_filter,
)
from fedspan.aggregation.base import believed
from fedspan.aggregation.safe_arithmetic import mixture
from fedspan.linalg.medians.vector_median import geometric_median

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32)


def test_mean_by_hand() -> None:
    result = Mean()([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0]])
    assert result.value.tolist() == [3.0, 30.0]
    assert result.weights.tolist() == [1 / 3] * 3
    weighted = Mean()([1.0, 2.0, 6.0], weights=[1, 2, 1])
    assert weighted.value == 2.75
    assert weighted.weights.tolist() == [0.25, 0.5, 0.25]


def test_mean_of_complex_values() -> None:
    assert Mean()([1 + 2j, 3 - 4j]).value == 2 - 1j


def test_coordinate_median_by_hand() -> None:
    result = CoordinateMedian()([[3.0, 1.0], [1.0, 2.0], [2.0, 9.0], [8.0, 4.0]])
    assert result.value.tolist() == [2.5, 3.0]
    # First entry: 2 and 3 are in the middle (sites 2 and 0); second entry: 2 and 4 (sites 1 and 3).
    assert result.weights.tolist() == [0.25, 0.25, 0.25, 0.25]


def test_coordinate_median_with_weights_by_hand() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    assert CoordinateMedian()(values, weights=[1, 1, 1, 4]).value == 4.0
    half = CoordinateMedian()(values, weights=[1, 1, 1, 3])  # 1, 2, 3 have exactly half
    assert half.value == 3.5
    assert half.weights.tolist() == [0.0, 0.0, 0.5, 0.5]
    # n times 0.3 is as much as 0.3 n, whatever floating-point sums say (for 5 too little, for 6 too much).
    for n in range(2, 20):
        value = CoordinateMedian()([1.0] * n + [2.0], weights=[0.3] * n + [0.3 * n]).value
        assert value == pytest.approx(1.5)


def test_coordinate_median_shares_its_trust_among_ties() -> None:
    result = CoordinateMedian()([5.0, 7.0, 5.0, 5.0, 1.0], weights=[1, 1, 2, 1, 1])
    assert result.value == 5.0
    np.testing.assert_allclose(result.weights, [0.25, 0, 0.5, 0.25, 0])


@quick
@given(seeds, st.integers(1, 12))
def test_coordinate_median_is_the_usual_one(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).normal(size=(count, 5))
    np.testing.assert_allclose(CoordinateMedian()(values).value, np.median(values, axis=0), rtol=1e-15)


@quick
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=8))
def test_a_weight_in_a_median_is_a_number_of_repetitions(pairs: list[tuple[int, int]]) -> None:
    values, times = np.array([float(v) for v, _ in pairs]), np.array([n for _, n in pairs])
    times[0] += 1
    assert CoordinateMedian()(values, times).value == np.median(np.repeat(values, times))


def test_trimmed_mean_by_hand() -> None:
    result = TrimmedMean(1)([[1.0, -9.0], [2.0, 4.0], [6.0, 5.0], [99.0, 6.0]])
    assert result.value.tolist() == [4.0, 4.5]
    assert result.weights.tolist() == [0.0, 0.5, 0.5, 0.0]
    weighted = TrimmedMean(1)([1.0, 2.0, 6.0, 99.0], weights=[1, 3, 1, 50])
    assert weighted.value == 3.0
    assert weighted.weights.tolist() == [0.0, 0.75, 0.25, 0.0]


def test_trimmed_mean_keeps_a_part_of_ties_on_the_edge() -> None:
    result = TrimmedMean(1)([1.0, 1.0, 4.0, 9.0])
    assert result.value == 2.5
    assert result.weights.tolist() == [0.25, 0.25, 0.5, 0.0]
    upper = TrimmedMean(2)([0.0, 1.0, 2.0, 3.0, 3.0, 3.0])  # 0 and 1 leave, and two of the three 3
    assert upper.value == pytest.approx(2.5)
    np.testing.assert_allclose(upper.weights, [0, 0, 1 / 2, 1 / 6, 1 / 6, 1 / 6])
    np.testing.assert_allclose(TrimmedMean(1)([2.0, 2.0, 2.0, 7.0]).weights, [1 / 3, 1 / 3, 1 / 3, 0])


@quick
@given(seeds, st.integers(0, 3), st.booleans())
def test_trimmed_mean_is_the_mean_of_the_middle(seed: int, f: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, (9, 4)).astype(float) if ties else rng.normal(size=(9, 4))
    expected = np.sort(values, axis=0)[f : 9 - f].mean(axis=0)
    np.testing.assert_allclose(TrimmedMean(f)(values).value, expected, atol=1e-14)


def test_geometric_median_by_hand() -> None:
    # The diagonals of a convex quadrilateral cross in its geometric median.
    result = GeometricMedian()([[0.0, 0.0], [4.0, 4.0], [0.0, 2.0], [2.0, 0.0]])
    np.testing.assert_allclose(result.value, [1.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(result.weights, [0.3, 0.1, 0.3, 0.3], atol=1e-12)
    # A value with half of the weight is the median.
    heavy = GeometricMedian()([[0.0, 0.0], [4.0, 4.0], [0.0, 2.0]], weights=[1, 2, 1])
    assert heavy.value.tolist() == [4.0, 4.0]
    assert heavy.weights.tolist() == [0.0, 1.0, 0.0]


@quick
@given(seeds)
def test_geometric_median_minimises_and_its_certificate_is_true(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(6, 2, 2)), rng.uniform(0.5, 2, size=6)

    def objective(z: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(values.reshape(6, -1) - z, axis=1))

    result = GeometricMedian()(values, weights)
    found = minimize(objective, values.reshape(6, -1).mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-9})
    assert objective(result.value.reshape(-1)) <= found.fun + 1e-12
    assert objective(result.value.reshape(-1)) - found.fun <= result.certificate + 1e-12
    assert result.certificate < 1e-9
    mixed = np.tensordot(result.weights, values, axes=1)
    np.testing.assert_allclose(result.value, mixed, atol=1e-12)


def test_the_certificate_is_in_the_units_of_the_values_and_weights() -> None:
    rng = np.random.default_rng(8)
    values, weights = rng.normal(size=(6, 4)), rng.uniform(0.5, 2, size=6)
    proven = GeometricMedian()(values, weights).certificate
    assert proven == geometric_median(values, weights).gap > 0
    assert GeometricMedian()(values * 2.0**1000, weights).certificate == pytest.approx(proven * 2.0**1000)
    assert GeometricMedian()(values, weights * 8).certificate == pytest.approx(proven * 8)
    means = values.reshape(3, 2, 4).mean(axis=1)
    assert MedianOfMeans(3)(values).certificate == pytest.approx(geometric_median(means).gap, rel=1e-3)


def test_geometric_median_of_complex_values_is_that_of_points_in_the_plane() -> None:
    values = np.array([0, 4 + 4j, 2j, 2])
    result = GeometricMedian()(values)
    np.testing.assert_allclose(result.value, 1 + 1j, atol=1e-12)


def test_median_of_means_by_hand() -> None:
    # 7 values in 3 groups: 3 + 2 + 2, with the means 2, 4 and 1e6.
    result = MedianOfMeans(3)([1.0, 2.0, 3.0, 3.0, 5.0, 0.0, 2e6])
    assert result.value == 4.0
    np.testing.assert_allclose(result.weights, [0, 0, 0, 0.5, 0.5, 0, 0])
    # Weights count within a group: the means are 1, 4.5 and 1e6.
    weighted = MedianOfMeans(3)([1.0, 2.0, 3.0, 3.0, 5.0, 0.0, 2e6], weights=[1e9, 1e-9, 1e-9, 1, 3, 1, 1])
    assert weighted.value == pytest.approx(4.5)
    np.testing.assert_allclose(weighted.weights, [0, 0, 0, 0.25, 0.75, 0, 0])


def test_median_of_means_is_between_the_mean_and_the_geometric_median() -> None:
    values = np.random.default_rng(3).normal(size=(7, 3))
    np.testing.assert_allclose(MedianOfMeans(1)(values).value, Mean()(values).value, rtol=1e-15)
    single, median = MedianOfMeans(7)(values), GeometricMedian()(values)
    np.testing.assert_array_equal(single.value, median.value)
    np.testing.assert_allclose(single.weights, median.weights)
    assert single.certificate == median.certificate


def test_krum_by_hand() -> None:
    # L = 5, f = 1: two nearest neighbours. Scores: 1 + 9, 1 + 4, 4 + 9, 16 + 25 and something huge.
    result = Krum(1)([0.0, 1.0, 3.0, 7.0, 1e6])
    assert result.value == 1.0
    assert result.weights.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert Krum(1)([0.0, 1.0, 3.0, 7.0, 1e6], weights=[9, 1, 9, 9, 9]).value == 1.0
    assert MultiKrum(1, 3)([0.0, 1.0, 3.0, 7.0, 1e6]).value == pytest.approx(4 / 3)
    weighted = MultiKrum(1, 2)([0.0, 1.0, 3.0, 7.0, 1e6], weights=[3, 1, 1, 1, 1])
    assert weighted.value == 0.25
    assert weighted.weights.tolist() == [0.75, 0.25, 0.0, 0.0, 0.0]


def test_equal_scores_share_a_place() -> None:
    assert Krum(0)([0.0, 1.0, 2.0, 3.0]).value == 1.5  # 1 and 2 score alike
    duplicates = Krum(1)([[5.0, 5.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
    assert duplicates.value.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(duplicates.weights, [0, 1 / 3, 1 / 3, 1 / 3, 0])
    # 3 is best (1 + 1); 2 and 4 (1 + 4 each) compete for the second place.
    two = MultiKrum(1, 2)([0.0, 2.0, 3.0, 4.0, 6.0])
    assert two.value == 3.0
    np.testing.assert_allclose(two.weights, [0, 0.25, 0.5, 0.25, 0])


def test_scores_that_differ_by_rounding_are_equal() -> None:
    for shift in (0.0, 0.1, 0.3, 1 / 3):
        result = Krum(0)(np.arange(6.0) + shift)
        assert result.value == pytest.approx(2.5 + shift)
        assert result.weights.tolist() == [0.0, 0.0, 0.5, 0.5, 0.0, 0.0]


@quick
@given(st.lists(st.tuples(*[st.integers(-6, 6)] * 2), min_size=7, max_size=9), st.integers(0, 2), st.integers(1, 5))
def test_krum_agrees_with_exact_arithmetic(points: list[tuple[int, int]], f: int, m: int) -> None:
    count = len(points)
    scores = []
    for x in points:
        squares = sorted(Fraction((x[0] - y[0]) ** 2 + (x[1] - y[1]) ** 2) for y in points)
        scores.append(sum(squares[1 : count - f - 1]))
    last = sorted(scores)[m - 1]
    better = [Fraction(score < last) for score in scores]
    tied = [score == last for score in scores]
    part = [b + (m - sum(better)) / Fraction(sum(tied)) * t for b, t in zip(better, tied, strict=True)]
    expected = [float(sum(p * x[i] for p, x in zip(part, points, strict=True)) / m) for i in (0, 1)]
    result = MultiKrum(f, m)(points)
    np.testing.assert_allclose(result.value, expected, atol=1e-12)
    np.testing.assert_allclose(result.weights, [float(p / m) for p in part], atol=1e-12)
    if m == 1:
        np.testing.assert_array_equal(Krum(f)(points).value, result.value)


def test_krum_sees_through_a_common_offset() -> None:
    offset = 1e8
    assert Krum(1)(np.array([0.0, 1.0, 3.0, 7.0, 1e6]) + offset).value == offset + 1


def test_clip_norm_by_hand() -> None:
    values = [[3.0, 4.0], [0.6, 0.8], [0.0, 2.0], [0.0, 0.0]]
    np.testing.assert_allclose(ClipNorm(Mean(), norm=2.5)(values).value, [(1.5 + 0.6) / 4, (2.0 + 0.8 + 2.0) / 4])
    # The norms are 5, 1, 2, 0, and the lower of the two middle ones is 1.
    np.testing.assert_allclose(ClipNorm(Mean(), factor=2)(values).value, [(1.2 + 0.6) / 4, (1.6 + 0.8 + 2.0) / 4])
    # With these weights the median of the norms is 2.
    weighted = ClipNorm(Mean(), factor=1)(values, weights=[1, 1, 2, 0])
    np.testing.assert_allclose(weighted.value, [(1.2 + 0.6) / 4, (1.6 + 0.8 + 4.0) / 4])
    np.testing.assert_allclose(weighted.weights, [0.25, 0.25, 0.5, 0])


def test_clip_norm_is_a_median_that_half_of_the_sites_cannot_raise() -> None:
    values = np.array([1.0, 2.0, 1e9, 1e9])
    assert ClipNorm(Mean(), factor=1)(values).value == pytest.approx((1 + 2 + 2 + 2) / 4)
    # Here ten times one tenth is half, whatever floating-point sums say.
    assert ClipNorm(Mean(), factor=1)([1.0] * 10 + [1e9], [0.1] * 10 + [1.0]).value == pytest.approx(1.0)


def test_clip_norm_hands_on_trust_and_certificate() -> None:
    values = np.random.default_rng(5).normal(size=(6, 3))
    inside, alone = ClipNorm(GeometricMedian(), norm=1e3)(values), GeometricMedian()(values)
    np.testing.assert_array_equal(inside.value, alone.value)
    np.testing.assert_array_equal(inside.weights, alone.weights)
    assert inside.certificate == alone.certificate


def test_clip_norm_of_complex_values_uses_their_modulus() -> None:
    assert ClipNorm(Mean(), norm=1.0)([3 + 4j, 0.0]).value == pytest.approx(0.3 + 0.4j)


def test_the_spectral_filter_sees_a_common_push_that_medians_of_distances_do_not() -> None:
    rng = np.random.default_rng(0)
    d = 100
    push = rng.normal(size=d)
    push *= np.sqrt(d) / np.linalg.norm(push)  # as long as an honest value
    for bad in (20, 60):
        values = np.vstack([rng.normal(size=(200 - bad, d)), np.tile(push, (bad, 1))])
        moved = {rule: rule(values).value @ push / d for rule in (SpectralFilter(), GeometricMedian(), Mean())}
        assert abs(moved[SpectralFilter()]) < 0.03
        assert moved[GeometricMedian()] > 0.8 * moved[Mean()] > 0.07
        weights = SpectralFilter()(values).weights
        assert weights[-bad:].sum() == 0.0
        assert (weights[:-bad] > 0.0).mean() > 0.99


def test_the_spectral_filter_takes_away_no_more_than_its_fraction() -> None:
    rng = np.random.default_rng(3)
    values = np.vstack([rng.normal(size=(122, 400)), np.full((78, 400), 1.0)])
    assert SpectralFilter(0.4)(values).weights[122:].sum() == 0.0
    assert SpectralFilter(0.3)(values).weights[122:].sum() > 0.3  # 39 % at one place stay together


def test_the_spectral_filter_leaves_honest_values_alone() -> None:
    values = np.random.default_rng(1).normal(size=(300, 40))
    result = SpectralFilter()(values)
    assert (result.weights > 0.0).all()
    assert np.linalg.norm(result.value - values.mean(axis=0)) < 0.1 * np.linalg.norm(values.mean(axis=0)) + 0.02


def test_a_value_without_a_share_costs_the_others_no_digits() -> None:
    """Sums of huge values are made of shrunk ones: not for the sake of one that has no part in the mean."""
    tiny = 5e-324
    values = np.array([[1e308], [3 * tiny], [tiny]])
    assert mixture(values, np.array([[0.0], [1.0], [1.0]])).tolist() == [2 * tiny]


def test_the_shortest_interval_holds_its_part_whatever_rounding_says_of_sums() -> None:
    """Any four neighbours of ten hold 0.4 of the weight: seven intervals of width 3, about 4.5."""
    for weight in (0.1, 0.3, 0.7, 1 / 3):
        centre, deviation = spectral_filter._shortest(np.arange(10.0), np.full(10, weight), 0.4)
        assert centre == pytest.approx(4.5)
        assert deviation == pytest.approx(1.5 / ndtri(0.7))


def test_values_are_shortened_to_the_median_distance_by_hand() -> None:
    """About 2 the values are -6, -2, 2 and 6: the median distance is 4, and who is farther is shortened to that."""
    rows, shorter = spectral_filter._shortened(np.array([[-4.0], [0.0], [4.0], [8.0]]), np.ones(4))
    assert rows.ravel().tolist() == [-1.0, -0.5, 0.5, 1.0]
    assert shorter.tolist() == [4 / 6, 1.0, 1.0, 4 / 6]
    tiny, _ = spectral_filter._shortened(2.0**-1060 * np.array([[-4.0], [0.0], [4.0], [8.0]]), np.ones(4))
    assert tiny.ravel().tolist() == [-1.0, -0.5, 0.5, 1.0]
    # where most values are one and the same the others have no say
    rows, shorter = spectral_filter._shortened(np.array([[1.0], [1.0], [1.0], [8.0]]), np.ones(4))
    assert (rows.tolist(), shorter.tolist()) == ([[0.0]] * 4, [1.0, 1.0, 1.0, 0.0])


def test_counts_that_sites_report_are_for_the_mean_alone() -> None:
    others = (CoordinateMedian(), GeometricMedian(), Krum(1), MultiKrum(1, 2), TrimmedMean(1), MedianOfMeans(3))
    for rule in (Mean(), *others, ClipNorm(Mean()), SpectralFilter()):
        counts = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        assert np.isfinite(rule(np.arange(5.0)).value)
        assert (believed(rule, counts) is counts) is (type(rule) is Mean), rule


def test_the_spectral_filter_filters_single_numbers_too():
    found = SpectralFilter()([[0.0], [0.1], [-0.1], [0.05], [1000.0]])
    assert abs(found.value[0]) <= 0.1
    assert found.weights[4] < 1e-3
