"""The spectral factor against the dense normalised kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedspan.errors import InputError
from fedspan.linalg import kernel_matrix
from fedspan.linalg.kernels.nystrom import spectral_factor, spectral_places


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
