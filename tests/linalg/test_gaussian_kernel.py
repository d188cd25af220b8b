"""Sums of the Gaussian kernel against loops and finite differences; the spectral factor against the dense kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedspan.errors import InputError
from fedspan.linalg.kernels import gaussian_kernel
from fedspan.linalg.kernels.gaussian_kernel import (
    characteristic,
    frequencies,
    kernel_matrix,
    kernel_pull,
    mmd2,
    spectral_factor,
    spectral_places,
)


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


# The spectral factor.


def groups(seed=0, n=150):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) + 6 * np.eye(3, 4)[np.arange(n) % 3]
    return X, X[rng.choice(n, 20, replace=False)] + 0.3 * rng.normal(size=(20, 4))


def dense(K, W):
    K_hat = K @ np.linalg.pinv(W, rcond=1e-8, hermitian=True) @ K.T
    d = K_hat.sum(axis=1)
    return np.linalg.eigh(K_hat / np.sqrt(d) / np.sqrt(d)[:, None])


@pytest.mark.parametrize("gamma", [0.02, 0.1])
def test_eigenpairs_are_those_of_the_dense_kernel(gamma):
    X, Y = groups()
    K, W = kernel_matrix(X, Y, gamma), kernel_matrix(Y, Y, gamma)
    found = spectral_factor(K.copy(), W, 3)
    values, vectors = dense(K, W)
    np.testing.assert_allclose(found.eigenvalues, values[:-4:-1], atol=1e-9)
    assert found.eigenvalues[0] == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(3), atol=1e-8)
    cosines = np.linalg.svd(found.vectors.T @ vectors[:, -3:])[1]
    assert cosines.min() > 1 - 1e-9


def test_rows_are_placed_where_they_were():
    X, Y = groups()
    K = np.exp(-0.05 * cdist(X, Y, "sqeuclidean"))
    found = spectral_factor(K, kernel_matrix(Y, Y, 0.05), 3)
    np.testing.assert_allclose(spectral_places(K, found.axes, found.degrees), found.vectors, atol=1e-8)
    np.testing.assert_allclose(spectral_places(K[7:8], found.axes, found.degrees), found.vectors[7:8], atol=1e-8)


def test_rows_far_from_all_landmarks_and_too_many_axes():
    X, Y = groups()
    K = kernel_matrix(X, Y, 0.05)
    K[3] = 0.0
    found = spectral_factor(K, kernel_matrix(Y, Y, 0.05), 3)
    assert np.isfinite(found.vectors).all()
    with pytest.raises(InputError, match="k=21 must be a whole number between 1 and 20, the rank"):
        spectral_factor(K, kernel_matrix(Y, Y, 0.05), 21)


def test_sums_in_parts_are_those_of_all_rows(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gaussian_kernel, "on_processor", lambda array: False)
    rng = np.random.default_rng(0)
    for n in (0, 10, 1024, 2500):
        K = rng.random((n, 3))
        np.testing.assert_allclose(gaussian_kernel._column_sums(torch.tensor(K)), K.sum(axis=0), atol=1e-10)
