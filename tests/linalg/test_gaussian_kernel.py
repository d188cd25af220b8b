"""Sums of the Gaussian kernel against loops, finite differences and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedspan.linalg.kernels import gaussian_kernel
from fedspan.linalg.kernels.gaussian_kernel import characteristic, frequencies, kernel_matrix, kernel_pull, mmd2


def rows(seed, n, m=3):
    return np.random.default_rng(seed).normal(size=(n, m))


def test_a_case_by_hand():
    X, Y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 1.0]])
    gamma = np.log(2)  # so that k is 2^-distance^2
    pull, total = kernel_pull(X, Y, gamma)
    np.testing.assert_allclose(pull, [[0.5, 0.0], [0.25, -0.75]])
    assert total == pytest.approx(1 + 0.5 + 0.5 + 0.25)
    assert mmd2(X, Y, gamma) == pytest.approx(1.5 / 2 - 2 * 2.25 / 4 + 1.5 / 2)


@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 9), st.floats(0.01, 10))
def test_pull_is_the_sum_that_it_says(seed, n, n_y, gamma):
    X, Y = rows(seed, n), rows(seed + 1, n_y)
    K = np.exp(-gamma * cdist(X, Y, "sqeuclidean"))
    pull, total = kernel_pull(X, Y, gamma)
    np.testing.assert_allclose(pull, np.einsum("ij,ijk->jk", K, X[:, None] - Y), atol=1e-12 * n)
    assert total == pytest.approx(K.sum())
    np.testing.assert_allclose(kernel_matrix(X, Y, gamma), K, rtol=1e-10)


@given(st.integers(0, 99), st.floats(0.05, 2))
def test_pull_is_the_gradient_of_the_kernel_sum(seed, gamma):
    X, Y = rows(seed, 12), rows(seed + 1, 4)
    direction, h = rows(seed + 2, 4), 1e-5
    ahead, behind = (kernel_pull(X, Y + sign * h * direction, gamma)[1] for sign in (1, -1))
    slope = 2 * gamma * np.sum(kernel_pull(X, Y, gamma)[0] * direction)
    assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-6, abs=1e-7)


def test_blocks_add_up(monkeypatch):
    X, Y = rows(0, 50), rows(1, 6)
    whole, sums = kernel_pull(X, Y, 0.3), characteristic(X, Y)
    apart = mmd2(X, Y, 0.3)
    monkeypatch.setattr(gaussian_kernel, "BLOCK_ROWS", 7)
    pull, total = kernel_pull(X, Y, 0.3)
    np.testing.assert_allclose(pull, whole[0], rtol=1e-12)
    assert total == pytest.approx(whole[1])
    np.testing.assert_allclose(characteristic(X, Y), sums, rtol=1e-12)
    assert mmd2(X, Y, 0.3) == pytest.approx(apart)


def test_single_precision_agrees_and_is_added_up_in_double():
    X, Y = rows(0, 3000, 20), rows(1, 10, 20)
    pull, total = kernel_pull(X.astype(np.float32), Y, 0.02)
    expected, sums = kernel_pull(X, Y, 0.02)
    assert pull.dtype == np.float64
    np.testing.assert_allclose(pull, expected, atol=1e-5 * np.abs(expected).max())
    assert total == pytest.approx(sums, rel=1e-6)


@given(st.integers(0, 99), st.integers(1, 20), st.integers(1, 20))
def test_mmd2_is_a_squared_distance(seed, n, n_y):
    X, Y = rows(seed, n), rows(seed + 1, n_y)
    assert mmd2(X, Y, 0.5) >= 0
    assert mmd2(X, X[::-1], 0.5) == pytest.approx(0, abs=1e-14)
    assert mmd2(X, Y, 0.5) == pytest.approx(mmd2(Y, X, 0.5), abs=1e-14)
    assert mmd2(X + 1e6, Y + 1e6, 0.5) == pytest.approx(mmd2(X, Y, 0.5), abs=1e-8)


def test_random_directions_estimate_mmd2():
    X, Y = rows(0, 300), rows(1, 20) * 1.2
    W = frequencies(np.random.default_rng(2), 20000, 3, 0.4)
    apart = characteristic(X, W) / len(X) - characteristic(Y, W) / len(Y)
    assert np.mean(np.sum(apart**2, axis=0)) == pytest.approx(mmd2(X, Y, 0.4), rel=0.03)
