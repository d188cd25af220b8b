"""Subspaces: distances by angles, orthonormal bases that refuse, eigenvectors with fixed signs."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg import (
    orthonormalize,
    polar_factor,
    q_factor,
    subspace_distance,
    top_eigenpairs,
    with_fixed_signs,
)


def basis(rng, n, r):
    return np.linalg.qr(rng.normal(size=(n, r)))[0]


def turned(angles, n=9):
    """Two bases whose principal angles are the given ones."""
    r = len(angles)
    V = np.vstack([np.diag(np.cos(angles)), np.diag(np.sin(angles)), np.zeros((n - 2 * r, r))])
    return np.eye(n)[:, :r], V


@pytest.mark.parametrize("angle", [1.2, 1e-3, 1e-8, 1e-12, 1e-15])
def test_distance_is_the_norm_of_the_sines(angle):
    rng = np.random.default_rng(0)
    U, V = turned(np.array([angle, 0.5 * angle, 0.0]))
    sines = np.sin([angle, 0.5 * angle])
    np.testing.assert_allclose(subspace_distance(U, V), np.linalg.norm(sines), rtol=1e-12)
    np.testing.assert_allclose(subspace_distance(U, V, norm="spectral"), sines[0], rtol=1e-12)
    # whatever the bases and the axes, to the rounding of the bases themselves
    axes, own, other = basis(rng, 9, 9), basis(rng, 3, 3), basis(rng, 3, 3)
    away = subspace_distance(axes @ U @ own, axes @ V @ other)
    np.testing.assert_allclose(away, np.linalg.norm(sines), rtol=1e-12, atol=3e-15)


def test_distance_of_equal_and_of_orthogonal_subspaces():
    eye = np.eye(6)
    assert subspace_distance(eye[:, :3], eye[:, [2, 0, 1]]) == 0.0
    assert subspace_distance(eye[:, :3], eye[:, 3:]) == np.sqrt(3)  # not divided by sqrt(r)
    assert subspace_distance(eye[:, :3], eye[:, 3:], norm="spectral") == 1.0


def test_distance_of_unequal_ranks_asks_whether_the_second_lies_in_the_first():
    eye = np.eye(5)
    assert subspace_distance(eye[:, :3], eye[:, :2]) == 0.0
    assert subspace_distance(eye[:, :2], eye[:, :3]) == 1.0
    assert subspace_distance(eye[:, :2], eye[:, 2:5]) == np.sqrt(3)


def test_distance_of_a_float32_basis_to_itself_is_not_1e_7():
    U = basis(np.random.default_rng(1), 200, 5).astype(np.float32)
    assert subspace_distance(U, U) < 1e-12


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_distance_is_symmetric_for_equal_ranks(seed, r):
    rng = np.random.default_rng(seed)
    U, V = basis(rng, 9, r), basis(rng, 9, r)
    for norm in ("fro", "spectral"):
        np.testing.assert_allclose(subspace_distance(U, V, norm), subspace_distance(V, U, norm), rtol=1e-12)
    projectors = np.linalg.norm(U @ U.T - V @ V.T) / np.sqrt(2)
    np.testing.assert_allclose(subspace_distance(U, V), projectors, rtol=1e-12)


@given(st.integers(0, 2**32))
def test_orthonormal_basis_of_the_same_span_with_positive_diagonal(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(8, 3)) * 10.0 ** rng.integers(-200, 200, size=3)
    Q = orthonormalize(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    unit = A / np.abs(A).max(axis=0)
    R = Q.T @ unit
    np.testing.assert_allclose(Q @ R, unit, atol=1e-13)
    assert (np.diagonal(R) > 0).all()
    np.testing.assert_allclose(np.tril(R, -1), 0, atol=1e-13)
    np.testing.assert_allclose(orthonormalize(Q), Q, atol=1e-13)  # nothing left to do


def test_orthonormalize_refuses_dependent_columns_at_its_tolerance():
    A = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    for nearly in (0.0, 1e-11):
        A[1, 1] = nearly
        with pytest.raises(InputError, match="linearly independent columns, but 1 of its 2 singular values"):
            orthonormalize(A)
    A[1, 1] = 1e-9
    np.testing.assert_allclose(orthonormalize(A), np.eye(3)[:, :2], atol=1e-15)
    with pytest.raises(InputError, match="independent"):
        orthonormalize(np.zeros((3, 2)))


@pytest.mark.parametrize("A", [np.ones((7, 3)), np.zeros((7, 3)), np.outer(np.arange(7.0), [1.0, -2.0, 1e-30])])
def test_orthonormalize_completes_dependent_columns(A):
    Q = orthonormalize(A, complete=True)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(Q @ (Q.T @ A), A, atol=1e-14)


@pytest.mark.parametrize("function", [orthonormalize, polar_factor])
@pytest.mark.parametrize(
    ("A", "message"),
    [
        ([[np.nan], [1.0]], "A must be finite"),
        ([[1.0, np.inf], [0.0, 1.0]], "A must be finite"),
        ([1.0, 2.0], r"not of shape \(2,\)"),
        ([[1.0, 2.0]], r"1 <= r <= n, not of shape \(1, 2\)"),
        (np.zeros((3, 0)), r"not of shape \(3, 0\)"),
    ],
)
def test_bases_cannot_be_made_of_this(function, A, message):
    with pytest.raises(InputError, match=message):
        function(A)


def test_completing_does_not_complete_what_is_not_finite():
    with pytest.raises(InputError, match="finite"):
        orthonormalize([[np.nan], [1.0]], complete=True)


@given(st.integers(0, 2**32))
def test_polar_factor_times_a_positive_matrix(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 3))
    Q = polar_factor(A)
    H = Q.T @ A
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(H, H.T, atol=1e-13)
    assert np.linalg.eigvalsh(H).min() > 0
    np.testing.assert_allclose(Q @ H, A, atol=1e-13)


def test_polar_factor_refuses_dependent_columns():
    with pytest.raises(InputError, match="independent"):
        polar_factor(np.ones((4, 2)))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 1), (5, 5), (40, 3), (40, 4), (40, 5), (40, 30)])
def test_top_eigenpairs_agree_with_numpy(n, k):
    A = np.random.default_rng(n).normal(size=(n, n))
    S = A + A.T
    values, vectors = top_eigenpairs(S, k)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S)[::-1][:k], atol=1e-12)
    np.testing.assert_allclose(S @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-13)
    assert (np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0) > 0).all()


def test_signs_do_not_hang_on_rounding():
    # the two entries are equal but for rounding: the first one leads in any case
    np.testing.assert_array_equal(with_fixed_signs(np.array([[-1.0], [1.0 + 1e-15]])), [[1.0], [-1.0 - 1e-15]])
    np.testing.assert_array_equal(with_fixed_signs(np.array([[-1.0 - 1e-15], [1.0]])), [[1.0 + 1e-15], [-1.0]])
    np.testing.assert_array_equal(with_fixed_signs(np.zeros((2, 1))), np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("S", "k", "message"),
    [
        ([[1.0, 2.0]], 1, "square"),
        ([[np.nan]], 1, "finite"),
        ([[1.0, 2.0], [3.0, 1.0]], 1, "symmetric"),
        (np.eye(3), 0, "k=0 must be a whole number between 1 and 3, the size of S"),
        (np.eye(3), 4, "k=4"),
    ],
)
def test_top_eigenpairs_refuses(S, k, message):
    with pytest.raises(InputError, match=message):
        top_eigenpairs(S, k)


def test_subspace_distance_refuses():
    eye = np.eye(4)
    with pytest.raises(InputError, match="norm='nuclear' must be one of 'fro', 'spectral'"):
        subspace_distance(eye, eye, norm="nuclear")
    with pytest.raises(InputError, match="V must have orthonormal columns"):
        subspace_distance(eye, 2 * eye)
    with pytest.raises(InputError, match="4 and 5 rows"):
        subspace_distance(eye, np.eye(5))
    with pytest.raises(InputError, match="U must be finite"):
        subspace_distance(np.nan * eye, eye)


@given(st.integers(1, 30), st.integers(1, 30), st.floats(-8, 2), st.floats(-150, 150), st.integers(0, 2**20))
def test_q_factor_is_the_orthonormal_basis_of_qr_with_a_positive_diagonal(n, r, spread, size, seed):
    r = min(n, r)
    rng = np.random.default_rng(seed)
    A = (basis(rng, n, r) + 10.0**spread * rng.normal(size=(n, r)) / np.sqrt(n)) * 10.0**size
    Q = q_factor(np.asfortranarray(A))
    np.testing.assert_allclose(Q.T @ Q, np.eye(r), atol=1e-13)
    np.testing.assert_allclose(q_factor(A), Q, atol=1e-13)  # whatever the order of the entries in memory
    R = Q.T @ A
    np.testing.assert_allclose(Q @ R, A, rtol=0, atol=1e-13 * np.linalg.norm(A))
    assert np.all(np.diagonal(R) > 0)
    np.testing.assert_allclose(np.tril(R, -1), 0.0, atol=1e-12 * np.linalg.norm(A))


@pytest.mark.parametrize("tilt", 10.0 ** np.arange(-16.0, 0.0))
def test_q_factor_does_not_trust_cholesky_where_columns_are_nearly_parallel(tilt):
    rng = np.random.default_rng(0)
    A = basis(rng, 20, 6)
    A[:, 5] = A[:, :5].sum(axis=1) + tilt * A[:, 5]
    Q = q_factor(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(6), atol=1e-14)
    np.testing.assert_allclose(Q, orthonormalize(A, complete=True), atol=0.0)  # Householder's way, to the last bit


def test_q_factor_of_what_has_none():
    np.testing.assert_allclose(q_factor(np.zeros((4, 2))).T @ q_factor(np.zeros((4, 2))), np.eye(2), atol=1e-15)
    with pytest.raises(InputError, match="finite"):
        q_factor(np.full((3, 2), np.nan))


def test_q_factor_takes_the_quick_way_where_it_may(monkeypatch):
    taken = []
    monkeypatch.setattr(
        importlib.import_module("fedspan.linalg.subspaces"), "orthonormalize", lambda A, **_: taken.append(1) or A
    )
    # of [[1, 0], [0, t]] the product is t^2 and the mean (1 + t^2) / 2
    for t, slow in ((1.0, 0), (0.5, 0), (0.17, 0), (0.15, 1), (1e-3, 1), (0.0, 1)):
        taken.clear()
        q_factor(np.asfortranarray(np.diag([1.0, t])))
        assert len(taken) == slow, t
