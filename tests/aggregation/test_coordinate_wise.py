"""The coordinate-wise median and the trimmed mean, by hand and against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.aggregation import (
    CoordinateMedian,
    TrimmedMean,
)

quick = settings(max_examples=40, deadline=None)


seeds = st.integers(0, 2**32)


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
