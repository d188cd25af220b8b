"""UMAP's fuzzy graph: by hand, against a plain loop, on torch, and its eigenvectors."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.array_backend import to_numpy
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.fuzzy_graph import FuzzyGraph, fuzzy_graph, graph_parts, memberships, spectral_start
from fedspan.linalg.layout.map_graph import plain
from tests.packages import Late, needs

torch = Late("torch")


def rows(n=80, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def plain_memberships(distances):
    """Return UMAP's memberships, row by row, as its paper describes them."""
    found = np.zeros_like(distances)
    target = np.log2(distances.shape[1] + 1)
    for row, d in enumerate(distances):
        rho = d[d > 0].min() if (d > 0).any() else 0.0
        low, high, sigma = 0.0, np.inf, 1.0
        for _ in range(200):
            total = np.exp(-np.maximum(d - rho, 0) / sigma).sum()
            low, high = (low, sigma) if total > target else (sigma, high)
            sigma = 2 * sigma if high == np.inf else (low + high) / 2
        found[row] = np.exp(-np.maximum(d - rho, 0) / sigma)
    return found


def test_memberships_are_those_of_the_plain_loop():
    distances = nearest(plain(rows()), 9)[1].astype(np.float64)
    found = memberships(distances)
    np.testing.assert_allclose(found, plain_memberships(distances), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), np.log2(10), atol=1e-6)
    for unit in (1e-30, 1e30):
        np.testing.assert_allclose(memberships(distances * unit), found, atol=1e-6)


def test_rows_that_coincide_are_full_members():
    found = memberships(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(found[:, :2], 1.0)
    assert found[1, 2] == 1.0
    assert np.isfinite(found).all()


@needs("torch")
def test_ties_join_both_memberships():
    indices, distances = nearest(plain(rows()), 9)
    graph = fuzzy_graph(indices, distances.astype(np.float64))
    inner = np.zeros((80, 80))
    np.put_along_axis(inner, indices.astype(np.int64), memberships(distances.astype(np.float64)), axis=1)
    expected = np.triu(inner + inner.T - inner * inner.T)
    found = np.zeros((80, 80))
    found[graph.heads, graph.tails] = graph.weights
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (graph.heads < graph.tails).all()
    there = fuzzy_graph(torch.tensor(indices), torch.tensor(distances))
    np.testing.assert_array_equal(to_numpy(there.heads), graph.heads)
    np.testing.assert_allclose(to_numpy(there.weights), graph.weights, atol=1e-6)


def test_parts_and_eigenvectors():
    heads = np.arange(39)
    path = FuzzyGraph(heads, heads + 1, np.ones(39), 40)
    assert graph_parts(path) == 1
    places = spectral_start(path, 2, np.random.default_rng(0))
    inner = np.sign(np.diff(places[1:-1, 0]))
    assert abs(inner.sum()) == len(inner)  # along the path
    np.testing.assert_allclose(places.T @ places, np.eye(2), atol=1e-6)
    assert graph_parts(FuzzyGraph(heads[:10], heads[:10] + 1, np.ones(10), 40)) == 30


@pytest.mark.parametrize("k", [1, 2])
def test_few_neighbours(k):
    indices, distances = nearest(plain(rows(5)), k)
    assert np.isfinite(fuzzy_graph(indices, distances).weights).all()
