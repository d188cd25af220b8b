"""Blocked nearest neighbours against all distances at once, and how much memory they take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedspan.errors import InputError
from fedspan.linalg.kernels import neighbors
from fedspan.linalg.kernels.landmark_form import LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest


def euclidean(X):
    X = np.asarray(X, dtype=np.float32)
    return LowRankDistances(X, np.full(X.shape[1], -2, dtype=np.float32), np.vecdot(X, X), squared=True)


def recall(found, expected):
    return np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, expected, strict=True)])


@given(st.integers(0, 200), st.integers(2, 150), st.data())
def test_nearest_are_those_of_all_distances(seed, n, data):
    k = data.draw(st.integers(1, n - 1))
    X = np.random.default_rng(seed).normal(size=(n, 3))
    indices, distances = nearest(euclidean(X), k)
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    expected = np.sort(D, axis=1)[:, :k]
    np.testing.assert_allclose(distances, expected, atol=2e-3)
    np.testing.assert_allclose(np.take_along_axis(D, indices, axis=1), expected, atol=2e-3)
    assert all(len(set(row)) == k for row in indices)


@pytest.mark.parametrize("n", [16, 100, 1001])
def test_blocks_of_any_size_give_the_same(n, monkeypatch):
    rows = euclidean(np.random.default_rng(0).normal(size=(n, 4)))
    expected = nearest(rows, 7)
    monkeypatch.setattr(neighbors, "block_rows", lambda n, device: 5)
    found = nearest(rows, 7)
    assert recall(found[0], expected[0]) == 1.0
    np.testing.assert_allclose(found[1], expected[1], atol=1e-3)


def test_queries_may_find_themselves():
    X = np.arange(10.0)[:, None]
    indices, distances = nearest(euclidean(X), 3, euclidean(X[[4, 9]]))
    assert indices[0, 0] == 4
    assert set(indices[0]) == {3, 4, 5}
    np.testing.assert_allclose(distances, [[0, 1, 1], [0, 1, 2]], atol=1e-3)


def test_duplicates_are_neighbours_at_distance_zero():
    indices, distances = nearest(euclidean(np.repeat([[1.0, 2.0], [5.0, 5.0]], 20, axis=0)), 5)
    np.testing.assert_array_equal(distances, 0)
    assert ((indices < 20) == (np.arange(40) < 20)[:, None]).all()
    assert (indices != np.arange(40)[:, None]).all()


def test_indefinite_forms():
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(400, 6)), rng.normal(size=(30, 6))
    rows = landmark_form(Y, "paper").of(cdist(X, Y))
    D = (rows.factor * rows.signs) @ rows.factor.T
    np.fill_diagonal(D, np.inf)
    indices, distances = nearest(rows, 10)
    assert recall(indices, np.argsort(D, axis=1)[:, :10]) > 0.999
    np.testing.assert_allclose(distances, np.maximum(np.sort(D, axis=1)[:, :10], 0), atol=1e-4)


def test_too_many_neighbours_are_refused():
    rows = euclidean(np.eye(4))
    with pytest.raises(InputError, match="k=4 must be a whole number between 1 and 3"):
        nearest(rows, 4)
    assert nearest(rows, 4, rows)[0].shape == (4, 4)


@pytest.mark.slow
@pytest.mark.slow
def test_ten_thousand_rows_in_a_quarter_of_a_gigabyte():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 20)) @ rng.normal(size=(20, 50)) + 0.3 * rng.normal(size=(10_000, 50))
    rows = euclidean(X / X.std())
    tracemalloc.start()
    indices, _ = nearest(rows, 90)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 0.25 * 2**30
    some = rng.choice(10_000, 1000, replace=False)
    D = cdist(rows.factor[some].astype(float), rows.factor.astype(float))
    D[np.arange(1000), some] = np.inf
    assert recall(indices[some], np.argpartition(D, 90, axis=1)[:, :90]) >= 0.9999


def test_blocks_fit_in_memory_by_hand():
    rows = neighbors.BLOCK_BYTES // 4 // 300
    assert [neighbors.block_rows(300 * rows // size) for size in (300, 500)] == [300, 500]
    assert [neighbors.block_rows(n) for n in (0, 1, 10**12)] == [1024, 1024, 16]
    assert [neighbors.block_rows(n, "cuda") for n in (1, neighbors.CARD_BLOCK_BYTES // 4 // 100, 10**12)] == [
        16384,
        100,
        16,
    ]
