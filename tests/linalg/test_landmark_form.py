"""Low-rank distances from distances to landmarks: exact where they can be, against dense formulas where not."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedspan.errors import InputError
from fedspan.linalg.kernels.landmark_form import METHODS, LowRankDistances, landmark_form


def dense(rows):
    """Return all distances of a form, but for those of rows to themselves."""
    factor = rows.factor.astype(float)
    values = rows.offset[:, None] + rows.offset + (factor * rows.signs) @ factor.T
    D = rows.as_distances(values)
    np.fill_diagonal(D, 0.0)
    return D


def points(seed, n, m):
    return np.random.default_rng(seed).normal(size=(n, m))


def test_a_case_by_hand():
    Y = np.array([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])  # they span the first axis
    X = np.array([[0.5, 3.0, 0.0], [-2.0, 0.0, 4.0]])
    rows = landmark_form(Y, "coordinates", residuals=True).of(cdist(X, Y))
    assert np.abs(rows.factor[0] - rows.factor[1]) == pytest.approx(2.5)
    assert dense(rows)[0, 1] ** 2 == pytest.approx(2.5**2 + 9 + 16, rel=1e-6)
    plain = landmark_form(Y, "coordinates", residuals=False).of(cdist(X, Y))
    assert dense(plain)[0, 1] == pytest.approx(2.5)


@given(st.integers(0, 200), st.integers(1, 5), st.integers(0, 20), st.sampled_from(["coordinates", "squared"]))
def test_exact_where_the_landmarks_span_everything(seed, m, more, method):
    X, Y = points(seed, 15, m), points(seed + 1, m + 4 + more, m)
    D = cdist(X, X)
    np.testing.assert_allclose(dense(landmark_form(Y, method).of(cdist(X, Y))), D, atol=5e-3 * D.max())
    shifted = landmark_form(Y + 100, method).of(cdist(X, Y))
    np.testing.assert_allclose(dense(shifted), D, atol=5e-3 * D.max())


def test_the_residual_is_the_squared_distance_to_the_span():
    rng = np.random.default_rng(0)
    Y, X = np.zeros((30, 8)), rng.normal(size=(10, 8))
    Y[:, :3] = rng.normal(size=(30, 3))
    rows = landmark_form(Y, "coordinates").of(cdist(X, Y))
    outside = np.sum(X[:, 3:] ** 2, axis=1)
    np.testing.assert_allclose(rows.offset - np.vecdot(rows.factor, rows.factor), outside, rtol=1e-4)
    assert rows.factor.shape == (10, 3)


def test_few_landmarks_go_without_residuals():
    assert not landmark_form(points(0, 24, 60)).residuals
    assert landmark_form(points(0, 25, 60)).residuals


@pytest.mark.parametrize("method", ["squared", "paper"])
def test_forms_with_pseudo_inverses_are_the_dense_formula(method):
    X, Y = points(0, 40, 30), points(1, 12, 30)
    power = 2 if method == "squared" else 1
    B, W = cdist(X, Y) ** power, cdist(Y, Y) ** power
    expected = np.abs(B @ np.linalg.pinv(W) @ B.T) ** (1 / power)
    np.fill_diagonal(expected, 0.0)
    rows = landmark_form(Y, method).of(cdist(X, Y))
    assert rows.squared == (method == "squared")
    np.testing.assert_allclose(dense(rows), expected, rtol=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_blocks_and_posted_precision_change_nothing_that_matters(method, monkeypatch):
    X, Y = points(0, 60, 5), points(1, 40, 5)
    B = cdist(X, Y)
    whole = dense(landmark_form(Y, method).of(B))
    np.testing.assert_allclose(dense(landmark_form(Y, method).of(B.astype(np.float32))), whole, atol=0.01)
    monkeypatch.setattr(sys.modules[landmark_form.__module__], "_BLOCK_ROWS", 7)
    np.testing.assert_allclose(dense(landmark_form(Y, method).of(B)), whole, atol=1e-3)


def test_the_map_of_single_rows_does_not_depend_on_the_others():
    X, Y = points(0, 9, 4), points(1, 30, 4)
    form = landmark_form(Y)
    np.testing.assert_allclose(form.of(cdist(X, Y)).factor[4:5], form.of(cdist(X[4:5], Y)).factor, rtol=1e-5)


def test_landmarks_that_coincide_make_no_noise():
    for method in METHODS:
        rows = landmark_form(np.ones((5, 3)), method).of(np.ones((4, 5)))
        assert np.isfinite(dense(rows)).all()
    with pytest.raises(InputError, match="method='cubed' must be one of 'coordinates', 'squared', 'paper'"):
        landmark_form(points(0, 5, 2), "cubed")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fineness_by_hand(kind):
    """Of 3 and 1 the square of the distance is 9 + 1 - 2 * 3 = 4, made of terms that are 16 together."""
    rows = LowRankDistances(np.array([[3.0], [1.0]], kind), np.array([-2.0], kind), np.array([9.0, 1.0], kind), True)
    assert rows.fineness([0, 1], np.array([[1], [0]])) == 0.25 / np.finfo(kind).eps
    # and the median of pairs
    three = LowRankDistances(np.array([[3.0], [1.0], [2.0]], kind), rows.signs, np.array([9.0, 1.0, 4.0], kind), True)
    parts = [4 / 16, 1 / 25, 1 / 9]  # of 3 and 1, 3 and 2, 1 and 2
    assert three.fineness([0, 0, 1], np.array([[1], [2], [2]])) == pytest.approx(sorted(parts)[1] / np.finfo(kind).eps)


def test_directions_in_which_landmarks_hardly_extend_are_left_out():
    """Of 0, 1 and 1 + e: squares tell the last two apart down to 1e-4 or so, distances themselves down to 1e-6."""
    for e, kept in ((1e-3, [1, 3, 3]), (1e-5, [1, 2, 3]), (1e-7, [1, 2, 2])):
        Y = np.array([[0.0], [1.0], [1.0 + e]])
        assert [len(landmark_form(Y, method).signs) for method in ("coordinates", "squared", "paper")] == kept
    thin = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 2e-4], [0.25, -2e-4]])
    assert [len(landmark_form(thin * [1.0, part]).signs) for part in (1.0, 0.1)] == [2, 1]
