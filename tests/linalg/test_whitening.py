"""Roots of inverse covariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.linalg import whitening_map, whitening_root, with_fixed_signs


def covariance(seed, d, rank):
    A = np.random.default_rng(seed).normal(size=(rank, d))
    return A.T @ A / rank


@settings(max_examples=25)
@given(st.integers(0, 999), st.integers(1, 9), st.integers(1, 12), st.floats(1e-6, 10.0))
def test_whitens_and_is_symmetric(seed, d, rank, ridge):
    C = covariance(seed, d, rank)
    W = whitening_root(C, ridge)
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W @ (C + ridge * np.eye(d)) @ W, np.eye(d), atol=1e-7)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_without_a_subspace_it_is_that_of_the_rest(k):
    C = covariance(0, 6, 20)
    axes = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    U, Q = axes[:, :k], axes[:, k:]
    W = whitening_root(C, 0.1, without=U)
    np.testing.assert_allclose(W @ U, 0.0, atol=1e-12)
    expected = Q @ np.linalg.inv(Q.T @ C @ Q + 0.1 * np.eye(6 - k)) @ Q.T
    np.testing.assert_allclose(W @ W, expected, atol=1e-10)


def test_of_principal_axes_the_other_axes_stay():
    C = np.diag([9.0, 4.0, 1.0])
    np.testing.assert_allclose(whitening_root(C, 1e-12, without=np.eye(3)[:, :1]), np.diag([0.0, 0.5, 1.0]), atol=1e-9)


def test_negative_rounding_is_no_variance():
    np.testing.assert_allclose(whitening_root(np.diag([1.0, -1e-17]), 0.25), np.diag([1.25**-0.5, 2.0]))


@settings(max_examples=25)
@given(st.integers(0, 999), st.integers(1, 9), st.integers(1, 12))
def test_the_map_makes_white_rows_and_leaves_out_what_has_no_variance(seed, d, rank):
    C = covariance(seed, d, rank)
    W = whitening_map(C)
    assert W.shape == (d, np.linalg.matrix_rank(C, tol=1e-8 * np.trace(C), hermitian=True))
    np.testing.assert_allclose(W.T @ C @ W, np.eye(W.shape[1]), atol=1e-5)


def test_a_floor_stretches_nothing_by_more():
    W = whitening_map(np.diag([3.9, 0.1, 0.0, 0.0]), floor=0.5)
    np.testing.assert_allclose(np.sort(np.abs(W).max(axis=1)), [3.9**-0.5, 2**0.5, 2**0.5, 2**0.5])
    assert whitening_map(np.zeros((2, 2))).shape == (2, 0)


@settings(max_examples=25)
@given(st.integers(0, 999), st.integers(1, 9))
def test_signs_of_a_whitening_map_are_fixed(seed, d):
    W = whitening_map(covariance(seed, d, 40))
    np.testing.assert_array_equal(W, with_fixed_signs(W))
