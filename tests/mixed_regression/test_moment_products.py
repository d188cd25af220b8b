"""Products of the moment matrix against the matrix itself; the number of clusters that its rank gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.aggregation import Mean
from fedspan.errors import InputError
from fedspan.mixed_regression.parts import moment_products, regression_rows
from fedspan.mixed_regression.parts.moment_products import (
    count_clusters,
    local_halves,
    local_pair_product,
    moment_product,
    spread_over_noise,
)
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis

from .mixtures import federation, mixture


def moment_matrix(X, y, sites, first, second=None):
    """The all-pairs matrix, pair by pair."""
    second = first if second is None else second
    Y, total = np.zeros((X.shape[1], X.shape[1])), 0
    for name in np.unique(sites):
        rows = np.flatnonzero(sites == name)
        n = len(rows)
        if n < 2:
            continue
        e, f = ((y[rows] - X[rows] @ model)[:, None] * X[rows] for model in (first, second))
        for a in range(n):
            for b in range(n):
                if a != b:
                    Y += (np.outer(e[a], f[b]) + np.outer(f[a], e[b])) / 2 / (n - 1)
        total += n
    return Y / total


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_products_are_those_of_all_pairs(seed):
    made = mixture(seed, sizes=(2, 3, 1, 6, 4), d=4)
    rng = np.random.default_rng(seed)
    models, Q = rng.normal(size=(3, 4)), rng.normal(size=(4, 3, 2))
    product, weights = moment_product(models, None)(federation(made), Q)
    for a in range(3):
        expected = moment_matrix(*made[:3], models[a]) @ Q[:, a]
        np.testing.assert_allclose(product[:, a], expected, atol=1e-12)
    by_mean, _ = moment_product(models, Mean())(federation(made), Q)
    np.testing.assert_allclose(by_mean, product, atol=1e-12)
    assert len(weights) == 5


def test_products_at_two_versions_of_the_models():
    made = mixture(1, sizes=(2, 3, 5), d=3)
    fed, rng = federation(made), np.random.default_rng(0)
    first, second = rng.normal(size=(2, 2, 3))
    fed.ask(moment_products.local_receive, first=first, second=second)
    Q = rng.normal(size=(3, 2, 2))
    product, _ = moment_product(first, None, perturbed=True)(fed, Q)
    for a in range(2):
        expected = moment_matrix(*made[:3], first[a], second[a]) @ Q[:, a]
        np.testing.assert_allclose(product[:, a], expected, atol=1e-12)


def test_large_sites_go_in_blocks(monkeypatch):
    made = mixture(2, sizes=(40, 30), d=3)
    Q, models = np.random.default_rng(0).normal(size=(3, 2, 2)), np.zeros((2, 3))
    whole, _ = moment_product(models, None)(federation(made), Q)
    monkeypatch.setattr(regression_rows, "_BLOCK_BYTES", 8 * 4 * 7)
    monkeypatch.setattr(moment_products, "_KEPT_BYTES", 0)
    pieces, _ = moment_product(models, None)(federation(made), Q)
    np.testing.assert_allclose(pieces, whole, atol=1e-12)


def test_the_papers_pairs():
    X, y = np.array([[1.0, 2.0], [3.0, -1.0], [9.0, 9.0]]), np.array([2.0, -1.0, 5.0])
    site = fs.Site("a", X, y)
    Q = np.array([[[1.0]], [[0.5]]])
    e1, e2 = 2.0 * X[0], -1.0 * X[1]
    reply = local_pair_product(site, np.zeros((1, 2)), Q, transposed=False)
    np.testing.assert_allclose(reply["product"][:, 0, 0], e1 * (e2 @ [1.0, 0.5]))
    reply = local_pair_product(site, np.zeros((1, 2)), Q, transposed=True)
    np.testing.assert_allclose(reply["product"][:, 0, 0], e2 * (e1 @ [1.0, 0.5]))
    assert local_pair_product(fs.Site("b", X[:1], y[:1]), np.zeros((1, 2)), Q, transposed=False)["n"] == 0


@pytest.mark.parametrize("aggregator", [None, Mean()])
def test_sites_of_one_row_have_no_pairs(aggregator):
    fed = federation(mixture(0, sizes=(1, 1, 1), d=2))
    with pytest.raises(InputError, match="no site has two rows"):
        moment_product(np.zeros((1, 2)), aggregator)(fed, np.ones((2, 1, 1)))


def test_the_moments_span_the_clusters():
    made = mixture(3, sizes=(30,) * 60, k=3, d=8)
    fed, models = federation(made), made[4]
    start = random_basis(np.random.default_rng(0), 8, 5)[:, None]
    product = moment_product(np.zeros((1, 8)), None)
    U = orthogonal_iteration(fed, product=product, start=start, iterations=15, rank=3)[0][:, 0]
    values, vectors = np.linalg.eigh(moment_matrix(*made[:3], np.zeros(8)))
    np.testing.assert_allclose(np.linalg.svd(U.T @ vectors[:, -3:])[1], 1.0, atol=1e-6)
    outside = models.T - U @ (U.T @ models.T)
    assert np.linalg.norm(outside) < 0.2 * np.linalg.norm(models)
    assert values[-3] > 3 * values[-4]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_clusters_are_counted(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(120 * 20, 8))
    y = X[np.arange(len(X)), np.repeat(np.arange(120) % k, 20)] + 0.2 * rng.normal(size=len(X))  # theta_j = e_j
    fed = fs.federate(X, y, sites=np.repeat([f"{i:03d}" for i in range(120)], 20))
    assert fed.run(count_clusters, start=np.zeros(8)) == k
    assert fed.run(count_clusters, start=np.zeros(8), most=1) == 1


def test_counting_needs_pairs_of_rows():
    with pytest.raises(InputError, match="no site has two rows"):
        count_clusters(federation(mixture(0, sizes=(1, 1, 1))), start=np.zeros(5))
    with pytest.raises(InputError, match="flips=0"):
        count_clusters(federation(mixture(0)), start=np.zeros(5), flips=0)


def test_halves_are_even_and_odd_rows_also_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(11, 3)), rng.normal(size=11)
    expected = np.stack([y[0::2] @ X[0::2] / 6, y[1::2] @ X[1::2] / 5])
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)
    monkeypatch.setattr(regression_rows, "_BLOCK_BYTES", 8 * 3 * 3)
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)


def test_one_site_cannot_say_that_all_differ():
    made = mixture(35, sizes=(10,) * 60, k=1, d=4)

    def shout(replies, bad, rng, call):
        return {site: {**replies[site], "halves": np.full((2, 4), 1e300)} for site in bad if "halves" in replies[site]}

    fed = federation(made).corrupt(shout, sites=["0003"])
    assert fed.run(spread_over_noise, start=made[4][0], robust=True) < 1.5
