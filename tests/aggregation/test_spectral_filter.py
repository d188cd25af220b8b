"""The spectral filter: pushes that medians of distances do not see, and its parts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from fedspan.aggregation import (
    GeometricMedian,
    Mean,
    SpectralFilter,
    spectral_filter,
)


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


def test_the_spectral_filter_filters_single_numbers_too():
    found = SpectralFilter()([[0.0], [0.1], [-0.1], [0.05], [1000.0]])
    assert abs(found.value[0]) <= 0.1
    assert found.weights[4] < 1e-3
