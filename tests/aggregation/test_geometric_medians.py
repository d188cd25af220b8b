"""The geometric median and the median of means, by hand and against a minimiser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedspan.aggregation import (
    GeometricMedian,
    Mean,
    MedianOfMeans,
)
from fedspan.linalg.medians.vector_median import geometric_median

quick = settings(max_examples=40, deadline=None)


seeds = st.integers(0, 2**32)


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
