"""UMAP's layout: its curve, forces, groups that stay apart, seeds, and torch beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.array_backend import to_numpy
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.fuzzy_graph import FuzzyGraph, fuzzy_graph
from fedspan.linalg.layout.map_graph import plain
from fedspan.linalg.layout.umap_layout import layout_curve, umap_layout
from tests.maps.blob_maps import accuracy, blobs
from tests.packages import Late, needs

torch = Late("torch")
CURVE = layout_curve(1.0, 0.1)


def graph_of(X, k=10):
    return fuzzy_graph(*nearest(plain(X), k))


def laid_out(graph, start, seed=0, epochs=60, **options):
    return umap_layout(graph, start, np.random.default_rng(seed), epochs=epochs, curve=CURVE, **options)


def test_the_curve_is_that_of_the_paper():
    assert layout_curve(1.0, 0.001) == pytest.approx((1.929, 0.7915), abs=2e-3)
    for spread, least in ((1.0, 0.1), (2.0, 0.5)):
        a, b = layout_curve(spread, least)
        far = 1.5 * spread
        assert 1 / (1 + a * far ** (2 * b)) == pytest.approx(np.exp(-(far - least) / spread), abs=0.05)


def test_groups_stay_apart_and_a_seed_decides():
    X, y = blobs()
    graph = graph_of(X)
    start = np.random.default_rng(1).normal(size=(150, 2)).astype(np.float32)
    before = start.copy()
    found = laid_out(graph, start, epochs=150)
    np.testing.assert_array_equal(start, before)
    assert found.shape == (150, 2)
    assert accuracy(found, y) > 0.97
    np.testing.assert_array_equal(laid_out(graph, start, epochs=150), found)
    assert not np.array_equal(laid_out(graph, start, seed=1, epochs=150), found)


@pytest.mark.parametrize("columns", [1, 3])
def test_any_number_of_components(columns):
    X, _ = blobs()
    start = np.random.default_rng(1).normal(size=(150, columns)).astype(np.float32)
    assert laid_out(graph_of(X), start).shape == (150, columns)


@needs("torch")
def test_tensors_give_a_map_of_the_same_quality():
    X, y = blobs()
    graph = graph_of(X)
    there = FuzzyGraph(*(torch.tensor(part) for part in (graph.heads, graph.tails, graph.weights)), graph.n)
    start = torch.tensor(np.random.default_rng(1).normal(size=(150, 2)).astype(np.float32))
    found = laid_out(there, start, epochs=150)
    assert accuracy(to_numpy(found), y) > 0.97
    assert torch.equal(laid_out(there, start, epochs=150), found)


def test_a_tie_pulls_and_other_rows_push():
    graph = FuzzyGraph(np.array([0]), np.array([1]), np.array([1.0]), 2)
    far = np.array([[-5.0, 0.0], [5.0, 0.0]], dtype=np.float32)
    found = laid_out(graph, far)
    assert np.linalg.norm(found[0] - found[1]) < 5
    turns = []
    laid_out(graph, far, epochs=3, after_turn=turns.append)
    assert turns == [0] * 4 + [1] * 4 + [2] * 4
