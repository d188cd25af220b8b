"""Clipping, by hand and for huge numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.aggregation import (
    ClipNorm,
    GeometricMedian,
    Mean,
)


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


def test_clipping_huge_values_keeps_their_direction() -> None:
    clipped = ClipNorm(Mean(), norm=10.0)([[3e307, 4e307], [0.0, 0.0]]).value
    np.testing.assert_allclose(clipped, [3.0, 4.0])
    clipped = ClipNorm(Mean(), factor=1.0)([[1.2e308, 1.6e308], [0.3, 0.4], [0.3, 0.4]]).value
    np.testing.assert_allclose(clipped, [0.3, 0.4])
    tiny = ClipNorm(Mean(), factor=1.0)([[3e-200, 4e-200], [6e-200, 8e-200]]).value
    np.testing.assert_allclose(tiny, [3e-200, 4e-200])
