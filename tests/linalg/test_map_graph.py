"""The graph of a private map, weights of neighbours, and positions of new rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg.layout.map_graph import map_graph, perplexity_weights, placed

TIES = {"neighbours": 6, "perplexity": 3.0, "own": 5, "own_perplexity": 3.0, "own_share": 0.25}


@given(st.integers(0, 99), st.floats(1.5, 8), st.floats(1e-6, 1e6))
def test_weights_have_the_entropy_of_the_perplexity(seed, perplexity, scale):
    distances = scale * np.sort(np.random.default_rng(seed).uniform(1, 3, size=(5, 10)), axis=1)
    weights = perplexity_weights(distances, perplexity)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (np.diff(weights, axis=1) <= 0).all()
    entropy = -np.sum(weights * np.log(weights + 1e-300), axis=1)
    np.testing.assert_allclose(np.exp(entropy), perplexity, rtol=1e-6)


def test_weights_fall_with_the_square_of_the_distance():
    weights = perplexity_weights(np.array([[1.0, 2.0, 3.0, 5.0]]), 2.5)[0]
    falls = np.diff(np.log(weights))
    np.testing.assert_allclose(falls / falls[0], np.array([3.0, 5.0, 16.0]) / 3.0)


def test_a_row_is_placed_whatever_rows_are_placed_with_it():
    embedding = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 1.0]])
    indices, distances = np.tile([0, 1, 2], (4, 1)), np.array([[1.0, 1.5, 4.0]] * 4) * np.arange(1, 5)[:, None]
    together = placed(embedding, indices, distances, 2.0)
    for i in range(4):
        np.testing.assert_allclose(placed(embedding, indices[i : i + 1], distances[i : i + 1], 2.0), together[[i]])


def test_equal_distances_count_alike():
    np.testing.assert_allclose(perplexity_weights(np.full((2, 4), 3.0), 2.0), 0.25)


def test_positions_are_between_those_of_the_neighbours():
    embedding = np.array([[0.0, 0.0], [2.0, 0.0], [50.0, 50.0]])
    found = placed(embedding, np.array([[0, 1, 2]]), np.array([[1.0, 1.0, 10.0]]), 2.0)
    assert found == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-3)
    assert placed(embedding, np.array([[2]]), np.array([[0.0]]), 5.0) == pytest.approx(embedding[[2]])


def test_the_graph_by_hand():
    X = np.array([[0.0], [1.0], [10.0]])
    centres = np.array([[0.4], [9.0], [50.0]])
    graph = map_graph(X, centres, neighbours=1, perplexity=1.0, own=1, own_perplexity=1.0, own_share=0.5)
    np.testing.assert_array_equal(graph.near, [[0], [0], [1]])
    np.testing.assert_allclose(graph.pull, 0.5)
    ties = {(int(i), int(j)): float(p) for i, j, p in zip(graph.ends, graph.others, graph.tie, strict=True)}
    assert ties == {(0, 1): 0.5, (1, 0): 0.5, (1, 2): 0.25, (2, 1): 0.25}  # half of each direction


def test_rows_without_neighbours_are_held_by_centres():
    rng = np.random.default_rng(0)
    X, centres = rng.normal(size=(1, 4)), rng.normal(size=(12, 4))
    alone = map_graph(X, centres, **TIES)
    assert alone.pull.sum() == pytest.approx(1.0)
    assert len(alone.tie) == 0
    empty = map_graph(X[:0], centres, **TIES)
    assert len(empty.near) == len(empty.tie) == 0
    few = map_graph(rng.normal(size=(3, 4)), centres, **TIES)
    assert few.pull.sum(axis=1) == pytest.approx([0.75] * 3)
    assert few.tie.sum() == pytest.approx(0.25 * 3)
