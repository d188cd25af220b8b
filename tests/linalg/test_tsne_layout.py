"""The layout of t-SNE on a device, against sums over all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout import tsne_layout as layout
from fedspan.linalg.layout.map_graph import plain
from fedspan.linalg.layout.map_quality import map_neighbors, shared_neighbors
from tests.packages import Late, needs

torch = Late("torch")
pytestmark = needs("torch")


def groups(n=240, k=6, d=8):
    rng = np.random.default_rng(3)
    of_row = np.arange(n) % k
    return 8 * rng.normal(size=(k, d))[of_row] + rng.normal(size=(n, d)), of_row


def shares_of(X, perplexity=10.0, k=30):
    indices, distances = nearest(plain(X), k)
    return layout.joint_shares(torch.tensor(indices), torch.tensor(distances), perplexity), indices


def test_shares_are_those_of_t_sne():
    X, _ = groups()
    shares, indices = shares_of(X)
    weights = layout.perplexity_weights(nearest(plain(X), 30)[1], 10.0)
    P = np.zeros((len(X), len(X)))
    np.put_along_axis(P, indices.astype(np.int64), weights, axis=1)
    P = (P + P.T) / (2 * len(X))
    found = np.zeros_like(P)
    found[shares.heads, shares.tails] = shares.p
    np.testing.assert_allclose(found + found.T, P, atol=1e-15)
    assert float(2 * shares.p.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("width", [0.01, 3.0, 15.0])
def test_forces_and_divergence_are_those_of_all_pairs(width):
    X, _ = groups()
    shares, _ = shares_of(X)
    Y = width * np.random.default_rng(0).normal(size=(len(X), 2))
    D = Y[:, None] - Y[None]
    q = 1 / (1 + (D**2).sum(axis=2))
    np.fill_diagonal(q, 0.0)
    P = np.zeros_like(q)
    P[shares.heads, shares.tails] = shares.p
    P += P.T
    n, there = len(X), torch.tensor(Y)
    pull = n * np.einsum("ij,ijq->iq", P * q, D)
    push = n * np.einsum("ij,ijq->iq", q**2, D) / q.sum()
    np.testing.assert_allclose(layout._attraction(there, shares), pull, atol=1e-6 * np.abs(pull).max() + 1e-7)
    assert np.linalg.norm(layout._repulsion(there).force.numpy() - push) < 0.03 * np.linalg.norm(push)
    assert float(layout._repulsion(there).Z) == pytest.approx(q.sum(), rel=0.01)
    true = np.sum(P[P > 0] * np.log(P[P > 0] / (q[P > 0] / q.sum())))
    assert layout._divergence(there, shares) == pytest.approx(true, abs=0.02)


def test_a_map_keeps_neighbours_together_and_is_repeatable():
    X, of_row = groups()
    shares, indices = shares_of(X)
    start = torch.tensor(1e-4 * np.random.default_rng(1).normal(size=(len(X), 2)))
    seen = []
    Y, divergence = layout.tsne_layout(
        shares, start, early=60, later=60, after_step=lambda steps, kl: seen.append((steps, kl()))
    )
    again, _ = layout.tsne_layout(shares, start, early=60, later=60)
    np.testing.assert_array_equal(Y, again)
    found = map_neighbors(Y.numpy(), 10)
    assert np.mean(of_row[found] == of_row[:, None]) > 0.97
    assert shared_neighbors(found, indices[:, :10]) > 0.4
    assert [steps for steps, _ in seen] == list(range(1, 121))
    assert divergence < seen[0][1]
    pull, push = layout._attraction(Y, shares).numpy(), layout._repulsion(Y).force.numpy()
    assert np.linalg.norm(pull - push) < 0.1 * np.linalg.norm(push)  # without exaggeration in the end
