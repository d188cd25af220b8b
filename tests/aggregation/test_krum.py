"""Krum and Multi-Krum, by hand, in exact arithmetic, and for numbers without squares."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.aggregation import (
    Krum,
    MultiKrum,
)

quick = settings(max_examples=40, deadline=None)


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


HONEST = np.array([[0.0, 1.0], [1.0, 1.5], [3.0, 1.0], [7.0, 2.0], [2.5, 0.0], [0.5, 0.25]])


@pytest.mark.parametrize("rule", [Krum(1), Krum(2), MultiKrum(2, 3), MultiKrum(2, 5)], ids=repr)
@pytest.mark.parametrize("size", [1e160, 1e300])
def test_krum_chooses_the_same_whether_the_bad_values_are_large_or_huge(rule: Any, size: float) -> None:
    large = rule(np.concatenate([HONEST, [[1e6, 1e6]], [[-1e6, 1e6]]]))
    huge = rule(np.concatenate([HONEST, [[size, size]], [[-size, size]]]))
    if rule.f == 2:  # with f = 1 both may hide behind the honest ones
        assert huge.weights[6:].tolist() == [0.0, 0.0]
        np.testing.assert_array_equal(huge.value, large.value)
    np.testing.assert_array_equal(huge.weights, large.weights)


@pytest.mark.parametrize("factor", [2.0**-700, 2.0**-530, 2.0**530, 2.0**1000])
def test_krum_scores_neither_overflow_nor_vanish(factor: float) -> None:
    usual, scaled = Krum(1)(HONEST), Krum(1)(HONEST * factor)
    assert usual.weights.max() == 1.0
    np.testing.assert_array_equal(scaled.weights, usual.weights)
    np.testing.assert_array_equal(scaled.value, usual.value * factor)
