"""Neighbourhoods on a map, against a full search."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.map_quality import map_neighbors, plain_distances, shared_neighbors


def full_search(Z, k):
    apart = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1)[:, :k]


def test_neighbours_are_those_of_a_full_search():
    Z = np.random.default_rng(0).normal(size=(300, 2))
    assert np.array_equal(map_neighbors(Z, 7), full_search(Z, 7))
    assert np.array_equal(map_neighbors(Z, 7, np.array([5, 200])), full_search(Z, 7)[[5, 200]])


def test_row_is_not_its_own_neighbour_where_many_lie_at_one_place():
    found = map_neighbors(np.zeros((30, 2)), 4)
    assert found.shape == (30, 4)
    assert not (found == np.arange(30)[:, None]).any()


def test_share_counts_what_both_have_whatever_the_order():
    rng = np.random.default_rng(1)
    found, truth = (np.array([rng.permutation(40)[:k] for _ in range(2500)]) for k in (12, 9))
    by_hand = sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True))
    assert shared_neighbors(found, truth) == pytest.approx(by_hand / truth.size)


def test_plain_distances_are_euclidean():
    X = np.random.default_rng(2).normal(size=(60, 5)) + 3
    indices, distances = nearest(plain_distances(X), 3)
    assert np.array_equal(indices, full_search(X, 3))
    assert distances[0] == pytest.approx(np.linalg.norm(X[0] - X[indices[0]], axis=1), rel=1e-4)
