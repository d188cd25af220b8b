"""Forces on a map of rows and centres: against the derivative of the loss, and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.layout.grid_repulsion import Grid
from fedspan.linalg.layout.map_descent import Motion, centre_sums, moved, pulls
from fedspan.linalg.layout.map_graph import map_graph

TIES = {"neighbours": 6, "perplexity": 3.0, "own": 5, "own_perplexity": 3.0, "own_share": 0.25}


def rows_and_centres(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)), rng.normal(size=(12, 4)), rng.normal(size=(n, 2)), rng.normal(size=(12, 2))


def loss(Y, graph, C):
    """Return the Kullback-Leibler divergence of the map, less what no position changes: by direct sums."""
    D = Y[:, None] - Y
    Z = (1 / (1 + np.sum(D**2, axis=2))).sum() - len(Y)
    to_centres = np.sum(graph.pull * np.log1p(np.sum((Y[:, None] - C[graph.near]) ** 2, axis=2)))
    to_rows = np.sum(graph.tie * np.log1p(np.sum((Y[graph.ends] - Y[graph.others]) ** 2, axis=1)))
    return (2 * to_centres + to_rows) / len(Y) + np.log(Z)  # ties of rows are there from both ends already


def test_the_force_is_the_derivative_of_the_loss():
    X, centres, Y, C = rows_and_centres()
    graph = map_graph(X, centres, **TIES)
    found = pulls(Y, graph, C)
    D = Y[:, None] - Y
    q = 1 / (1 + np.sum(D**2, axis=2))
    Z = q.sum() - len(Y)
    assert found.stretch / len(Y) + np.log(Z) == pytest.approx(loss(Y, graph, C))
    force = found.force - len(Y) / Z * np.einsum("ij,ijk->ik", q**2, D)
    numeric = np.empty_like(Y)
    for place in np.ndindex(Y.shape):
        step = np.zeros_like(Y)
        step[place] = 1e-6
        numeric[place] = (loss(Y + step, graph, C) - loss(Y - step, graph, C)) / 2e-6
    np.testing.assert_allclose(len(Y) / 4 * numeric, force, atol=1e-6)


def test_pulls_and_sums_by_plain_loops():
    X, centres, Y, C = rows_and_centres(9)
    graph = map_graph(X, centres, **TIES)
    found = pulls(Y, graph, C)
    force, sums = np.zeros_like(Y), np.zeros((12, 3))
    for i in range(9):
        for place, p in zip(graph.near[i], graph.pull[i], strict=True):
            w = p / (1 + np.sum((Y[i] - C[place]) ** 2))
            force[i] += w * (Y[i] - C[place])
            sums[place] += [w * Y[i, 0], w * Y[i, 1], w]
    for i, j, p in zip(graph.ends, graph.others, graph.tie, strict=True):
        force[i] += p * (Y[i] - Y[j]) / (1 + np.sum((Y[i] - Y[j]) ** 2))
    np.testing.assert_allclose(found.force, force, atol=1e-12)
    np.testing.assert_allclose(centre_sums(Y, graph, C), sums, atol=1e-12)


def test_a_step_by_hand():
    now = Motion(np.zeros((1, 2)), np.array([[0.5, -0.5]]), np.ones((1, 2)))
    after = moved(now, np.array([[-1.0, -1.0]]), rate=0.1, momentum=0.5, farthest=9.0)
    np.testing.assert_allclose(after.gains, [[1.2, 0.8]])  # one goes on, the other turns
    np.testing.assert_allclose(after.move, [[0.25 + 0.12, -0.25 + 0.08]])
    np.testing.assert_allclose(after.Y, after.move)
    short = moved(now, np.array([[-1e9, 0.0]]), rate=0.1, momentum=0.5, farthest=2.0)
    assert np.linalg.norm(short.move) == pytest.approx(2.0)


def test_descent_lowers_the_loss():
    X, centres, Y, C = rows_and_centres()
    graph = map_graph(X, centres, **TIES)
    now, losses = Motion(Y, np.zeros_like(Y), np.ones_like(Y)), []
    for _ in range(40):
        low = now.Y.min(axis=0) - 1
        grid = Grid(low, float((now.Y.max(axis=0) + 1 - low).max()) / 255, 256)
        H = grid.histogram(now.Y)
        Q = grid.repulsion(H)
        Z = np.vdot(Q[0], H) - grid.own_kernel(now.Y)
        force = pulls(now.Y, graph, C).force - len(Y) / Z * grid.between(Q[1:], now.Y)
        losses.append(loss(now.Y, graph, C))
        now = moved(now, force, rate=0.2, momentum=0.5, farthest=5.0)
    assert losses[-1] < losses[0] - 0.5
