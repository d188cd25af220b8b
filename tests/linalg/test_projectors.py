"""Inner products of projectors and their medians: error bounds that hold in long double."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg import geometric_median
from fedspan.linalg.medians import projectors
from fedspan.linalg.medians.median_certificate import rounding
from fedspan.linalg.medians.projectors import orthonormality_defect, overlap_geometry, residual_geometry
from tests.linalg import long_double
from tests.linalg.subspace_sites import sites


@given(st.integers(0, 2**32), st.integers(-12, 0))
def test_both_geometries_know_their_errors(seed, exponent):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    bases = sites(rng, n, int(rng.integers(1, n + 1)), 3, 2, 10.0**exponent)
    P = long_double.projectors(bases)
    defect = orthonormality_defect(bases)
    defect = defect[1].max() + defect[2]
    reference = int(rng.integers(5))
    for geometry in (overlap_geometry(bases, defect)[0], residual_geometry(bases, defect, reference)):
        own = int(np.argmin(np.abs(geometry.gram).sum(axis=1)))  # the reference is at the origin
        V = P - P[own]
        assert (np.abs(geometry.gram - V @ V.T) <= geometry.error + 1e-35).all()


@given(st.integers(0, 2**32), st.integers(-12, 0), st.integers(1, 6), st.integers(0, 3))
def test_dense_projectors_know_their_errors(seed, exponent, honest, malicious):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    bases = sites(rng, n, int(rng.integers(1, min(n, 3) + 1)), honest, malicious, 10.0**exponent)
    defect = orthonormality_defect(bases)
    median = projectors.median_of_dense_projectors(bases, defect[1].max() + defect[2])
    P = long_double.projectors(bases)
    P = P - P[median.nearest]
    weights = median.weights.astype(np.longdouble)
    Z = (weights[:, None] / weights.sum() * P).sum(axis=0)
    away = long_double.distances(P, Z)
    assert ((median.low <= away) & (away <= median.high)).all()
    assert (median.high - median.low <= 1e-13).all()
    assert long_double.excess(P, np.ones(len(P)), Z) <= median.gap


def test_projectors_are_taken_where_they_are_the_smaller_numbers():
    assert projectors.are_smaller(325, 25)  # 25 * 26 / 2
    assert not projectors.are_smaller(324, 25)
    assert projectors.are_smaller(301, 3)
    assert not projectors.are_smaller(300, 3)


def test_the_bounds_of_dense_projectors_are_those_of_their_derivation():
    # sites 0 and 1 agree, the third is 2 away from them: the median's distances are 0, 0 and 2
    bases, defect = np.array([np.eye(4)[:, :2], np.eye(4)[:, :2], np.eye(4)[:, 2:]]), 1e-3
    median = projectors.median_of_dense_projectors(bases, defect)
    np.testing.assert_array_equal(median.distances, [0.0, 0.0, 2.0])
    moved = rounding(6) * (2.0 + defect * np.sqrt(2.0)) + defect
    assert median.weights @ median.distances == 0.0
    far = 2.0 * moved + 2.0 * rounding(24)
    np.testing.assert_allclose(median.high, [2.0 * moved, 2.0 * moved, 2.0 + far], rtol=1e-15)
    np.testing.assert_allclose(median.low, [0.0, 0.0, 2.0 - far], rtol=1e-15)
    own = geometric_median(np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]])).gap
    assert median.gap == pytest.approx(own + 9.0 * moved, rel=1e-12)
    # three lines 60 degrees apart: the sum of the weights' products is rounded too, in 3 + 8 steps
    angles = np.radians([0, 60, 120])
    lines = projectors.median_of_dense_projectors(np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None], 0.0)
    moved, away = rounding(5), np.sqrt(0.5)
    wide = 2.0 * (2.0 * moved + rounding(11) * away + rounding(12) * away)
    np.testing.assert_allclose(lines.high - lines.low, wide, rtol=0.1)  # differences of numbers near 0.7


def test_the_error_bounds_of_inner_products_are_those_of_their_derivation():
    bases, defect = np.array([np.eye(4)[:, :2], np.eye(4)[:, 2:]]), 1e-3
    overlaps = overlap_geometry(bases, defect)[0]
    error = 6.0 * np.sqrt(2.0) * (2.0 * rounding(4 + 1 + 4) + defect)
    np.testing.assert_allclose(overlaps.error, [[0.0, 0.0], [0.0, error]], rtol=1e-15)
    assert overlaps.tolerance == pytest.approx(2.0 * np.sqrt(error), rel=1e-15)
    # U_j = U M_j + N_j: of the other site M is 0, and what rounding moves is of N alone, which has the norm sqrt 2
    residuals = residual_geometry(bases, 0.0, 0)
    step = np.sqrt(2.0) * rounding(16 + 5)
    moved, small = step * np.sqrt(2.0) * np.array([2.0, 1.0]), 2.0 * rounding(2 + 2 + 4)
    assert residuals.tolerance == pytest.approx(4.0 * moved[0] + 2.0 * small, rel=1e-14)
    relative = 8.0 * small + 4.0 * rounding(4 + 1 + 4) + 8.0 * rounding(4)
    cross = 2.0 * moved[1] + 3.0 * small * np.sqrt(2.0)
    error = 4.0 * relative + 2.0 * cross + moved[1] ** 2 + 10.0 * small**2
    np.testing.assert_allclose(residuals.error, [[0.0, 0.0], [0.0, error]], rtol=1e-14)
    np.testing.assert_allclose(residuals.gram, [[0.0, 0.0], [0.0, 4.0]], rtol=1e-15)
