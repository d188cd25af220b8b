"""Products of the moment matrix against the matrix itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.aggregation import Mean
from fedspan.errors import InputError
from fedspan.mixed_regression.parts import moment_products
from fedspan.mixed_regression.parts.moment_products import local_pair_product, moment_product
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
    from fedspan.mixed_regression.parts import regression_rows

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


def test_orthogonal_iteration_of_an_asymmetric_matrix_finds_left_singular_vectors():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(6, 6)) + np.outer(np.arange(6.0), np.ones(6)) * 3
    U = np.linalg.svd(Y)[0][:, :2]
    fed = federation(mixture(0, sizes=(2, 2)))
    found, _ = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        transposed=lambda fed, Q: (Y.T @ Q, {}),
        start=random_basis(rng, 6, 2),
        iterations=60,
    )
    np.testing.assert_allclose(np.linalg.svd(U.T @ found)[1], 1.0, atol=1e-8)
    turned = orthogonal_iteration(
        fed, product=lambda fed, Q: (Y @ Q, {}), start=random_basis(rng, 6, 2), iterations=60
    )[0]
    assert np.linalg.svd(U.T @ turned)[1][1] < 0.999  # without the transposed product these are no singular vectors


@pytest.mark.parametrize("unit", [1.0, 1e160, 1e-170])
@pytest.mark.parametrize("smallest", [1e-3, 1e-9])
def test_the_qr_that_the_paper_leaves_out_saves_small_directions_and_absurd_units(unit, smallest):
    """Left out, singular values are squared between two QRs. It is the same iteration where that is harmless."""
    rng = np.random.default_rng(0)
    A, B = random_basis(rng, 20, 20), random_basis(rng, 20, 20)
    Y = unit * A * np.r_[1.0, 1e-2, smallest, np.full(17, 0.01 * smallest)] @ B.T
    start = random_basis(rng, 20, 3)

    def off(Q):
        return np.linalg.norm(A[:, :3] - Q @ (Q.T @ A[:, :3]))

    fed = federation(mixture(0, sizes=(2, 2)))
    ours = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        transposed=lambda fed, Q: (Y.T @ Q, {}),
        start=start,
        iterations=2,
    )[0]
    as_written = start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(2):
            product = Y @ (Y.T @ as_written)
            as_written = np.linalg.qr(product)[0] if np.isfinite(product).all() else np.full_like(start, np.nan)
    np.testing.assert_allclose(ours.T @ ours, np.eye(3), atol=1e-12)
    assert off(ours) < 1e-3
    if unit > 1.0:
        assert np.isnan(off(as_written))
    elif unit < 1.0:
        assert off(as_written) > 1.0
    elif smallest < 1e-8:  # the square is lost beside 1, and found again in later iterations
        assert off(as_written) > 20 * off(ours)
        for _ in range(10):
            as_written = np.linalg.qr(Y @ (Y.T @ as_written))[0]
        assert off(as_written) < 1e-5
    else:
        assert off(as_written) == pytest.approx(off(ours), rel=1e-2)


def test_extra_columns_keep_out_large_negative_eigenvalues():
    Y = np.diag([3.0, -5.0, 2.0, 0.5])
    fed = federation(mixture(0, sizes=(2, 2)))
    found, _ = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        start=random_basis(np.random.default_rng(0), 4, 3),
        iterations=40,
        rank=2,
    )
    np.testing.assert_allclose(np.abs(found[1]), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.abs(found[3]), 0.0, atol=1e-6)
