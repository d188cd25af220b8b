"""The mean, by hand."""

from __future__ import annotations

import pytest

from fedspan.aggregation import (
    Mean,
    MedianOfMeans,
)


def test_mean_by_hand() -> None:
    result = Mean()([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0]])
    assert result.value.tolist() == [3.0, 30.0]
    assert result.weights.tolist() == [1 / 3] * 3
    weighted = Mean()([1.0, 2.0, 6.0], weights=[1, 2, 1])
    assert weighted.value == 2.75
    assert weighted.weights.tolist() == [0.25, 0.5, 0.25]


def test_mean_of_complex_values() -> None:
    assert Mean()([1 + 2j, 3 - 4j]).value == 2 - 1j


def test_the_mean_of_huge_values_does_not_overflow() -> None:
    assert Mean()([1e308, 1.5e308, 1.1e308]).value == pytest.approx(1.2e308)
    assert Mean()([1.7976931348623157e308] * 7).value == 1.7976931348623157e308
    assert MedianOfMeans(1)([1e308, 1.5e308, 1.1e308]).value == pytest.approx(1.2e308)
