"""Errata of print and of proofs, which no other test would meet; and every erratum names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.datasets import make_few_shot_tasks, make_mixed_regression
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.landmarks.feddl import local_pull
from fedspan.linalg import bottleneck_distance, q_factor
from fedspan.linalg.kernels.gaussian_kernel import mmd2
from fedspan.pca.fedpg import stiefel
from fedspan.pca.parts.consensus import augmented_lagrangian

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"


def entries():
    """Return the errata: what the paper has, and what shows it."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [(cell[0].strip(), cell[2]) for cell in cells if cell[0].strip() != "in the paper"]


def test_the_page_has_errata():
    assert entries()


@pytest.mark.parametrize(("said", "shown"), entries())
def test_every_erratum_links_to_the_test_that_shows_it_by_its_full_name(said, shown):
    links = re.findall(r"\[`(\w+)`\]\((\S+?\.py)\)", shown)
    assert links
    assert len(links) == shown.count("](")
    for name, path in links:
        assert f"def {name}(" in (PAGE.parent / path).read_text(encoding="utf-8")


def test_the_dual_term_of_the_lagrangian_is_a_trace():
    rng = np.random.default_rng(0)
    U, Z, Y = rng.normal(size=(3, 6, 2))
    assert (Y.T @ (U - Z)).shape == (2, 2)  # equation 13 adds this to a number
    expected = 5.0 + np.trace(Y.T @ (U - Z)) + 0.35 * np.sum((U - Z) ** 2)
    assert augmented_lagrangian(5.0, U, Z, Y, 0.7) == pytest.approx(expected)


def test_rounding_noise_of_a_whole_space_still_ranks_rows():
    rng = np.random.default_rng(0)
    large = np.arange(200) % 2
    X = rng.normal(size=(200, 6)) * np.where(large, 100.0, 1.0)[:, None]
    U = np.linalg.svd(X, full_matrices=False)[2].T
    residual = np.linalg.norm(X - X @ U @ U.T, axis=1)
    assert residual.max() < 1e-11
    assert roc_auc_score(large, residual) > 0.95


def test_the_minimum_on_the_manifold_is_not_stationary_in_the_whole_space():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 6)) * [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    C, rho = X.T @ X / 50, 2.0
    U, Z, Y = q_factor(rng.normal(size=(6, 2))), q_factor(rng.normal(size=(6, 2))), rng.normal(size=(6, 2))

    def gradient(U):  # of ||X - X U U'||^2 / n + tr Y'(U - Z) + rho / 2 ||U - Z||^2
        P = U @ U.T
        return -2.0 * (2.0 * C - C @ P - P @ C) @ U + Y + rho * (U - Z)

    for _ in range(3000):
        U = q_factor(stiefel(np.asfortranarray(U), np.asfortranarray(-gradient(U) / 40.0)))
    G = gradient(U)
    along = G - U @ (U.T @ G + G.T @ U) / 2
    assert np.linalg.norm(along) < 1e-6  # the constrained problem is solved ...
    assert np.linalg.norm(G) > 0.1  # ... and the condition that the proof starts from does not hold


def test_sigma_2_depends_on_the_unit_unless_l_is_squared():
    L, rho, mu = 2.0, 1.0, 1.0
    as_printed = [c * L / (c * rho) - c * mu / 2 for c in (1.0, 1000.0)]  # f in another unit: L, rho, mu times c
    as_in_the_lemma = [(c * L) ** 2 / (c * rho) - c * mu / 2 for c in (1.0, 1000.0)]
    assert np.sign(as_printed).tolist() == [1.0, -1.0]
    assert as_in_the_lemma[1] == pytest.approx(1000.0 * as_in_the_lemma[0])


def test_the_frobenius_norm_does_not_give_sd_2():
    U, V = np.eye(8)[:, :4], np.eye(8)[:, 4:]
    assert fs.linalg.subspace_distance(U, V) == pytest.approx(2.0)
    assert fs.linalg.subspace_distance(U, V, norm="spectral") == pytest.approx(1.0)


def test_every_node_sees_all_tasks_and_a_part_of_their_rows():
    data = make_few_shot_tasks(10, 6, 2, 20, 5, seed=0)
    for site in np.unique(data.sites):
        assert np.bincount(data.task[data.sites == site], minlength=6).tolist() == [4] * 6


def test_the_exponent_of_lemma_3_1_needs_its_minus():
    L, a, p = 18, 0.4, 0.1
    psi = a * np.log(a / p) + (1 - a) * np.log((1 - a) / (1 - p))
    assert 1 - np.exp(L * psi) < 0  # no probability
    assert binom.sf(np.ceil(a * L) - 1, L, p) <= np.exp(-L * psi) < 1  # the bound that is meant


def test_algorithm_2_takes_the_last_iterates_of_all_batches():
    n, q, r, groups, rho = 20, 30, 2, 6, 2
    data = make_few_shot_tasks(n, q, r, 96, groups * rho, seed=0)
    fed = fs.federate(data.X, data.y, sites=data.sites, task=data.task, seed=0)
    theta = np.zeros((groups * rho, n, q))
    for place, site in enumerate(fed.sites):
        for task in range(q):
            rows = (data.sites.astype(str) == site) & (data.task == task)
            theta[place, :, task] = data.X[rows].T @ data.y[rows]
    start = q_factor(np.random.default_rng(1).normal(size=(n, r)))

    def output(theta, batches=groups, last=True):
        bases = []
        for batch in theta.reshape(groups, rho, n, q)[:batches]:
            U = start
            for _ in range(60 if last else 0):
                U = q_factor(batch.sum(axis=0) @ (batch.sum(axis=0).T @ U))
            bases.append(U)
        return fs.linalg.subspace_median(np.stack(bases), output="node").basis

    start_by_medians = {"init": "median_of_means", "groups": groups, "output": "node", "power_iterations": 60}
    ours = fed.run(byz_altgdmin, rank=r, n_columns=n, iterations=0, truncation=1e9, **start_by_medians).basis
    assert fs.linalg.subspace_distance(ours, output(theta)) < 1e-6
    assert fs.linalg.subspace_distance(start, output(theta, last=False)) < 1e-9  # (U)_0: no data in it at all
    attack = q_factor(np.random.default_rng(2).normal(size=(n, r))) @ np.random.default_rng(3).normal(size=(r, q))
    theta[[0, rho]] += 1e6 * attack  # one site each in the first two of six batches: fewer than 0.4 of them
    assert fs.linalg.subspace_distance(data.basis, output(theta)) < 0.5
    assert fs.linalg.subspace_distance(data.basis, output(theta, batches=rho)) > 1.0  # [rho]: bad ones alone


def test_the_product_of_line_16_is_a_sum_over_tasks_already():
    rng = np.random.default_rng(0)
    theta, V = rng.normal(size=(8, 5)), rng.normal(size=(5, 2))
    np.testing.assert_allclose(theta @ V, sum(np.outer(theta[:, k], V[k]) for k in range(5)))
    np.testing.assert_allclose(q_factor(sum(theta @ V for _ in range(5))), q_factor(theta @ V))  # harmless, at that


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(1, 1000)), min_size=1, max_size=20), st.integers(2, 50))
def test_theorem_1_of_feddl_allows_no_second_local_step(sites, Q):
    smoothness, rows = np.array(sites).T
    L = smoothness @ rows / rows.sum()  # as defined there
    rho_L = 0.0  # the least that it could be
    assert 3 * (Q - 1) ** 2 * (rho_L + smoothness.max() ** 2 / L**2) > 2.99
    assert 3 * (1 - 1) ** 2 * (rho_L + smoothness.max() ** 2 / L**2) < 1  # Q = 1


def test_the_kernel_among_rows_has_no_part_in_the_gradient():
    rng = np.random.default_rng(2)
    X, Y, gamma = rng.normal(size=(30, 3)), rng.normal(size=(5, 3)), 0.3
    pull = local_pull(fs.Site("a", X), Y=Y, gamma=gamma)["pull"]  # n_p n_y kernels
    mutual = local_pull(fs.Site("b", Y), Y=Y, gamma=gamma)["pull"]
    formula = -4 * gamma * pull / (30 * 5) + 4 * gamma * mutual / 25
    for j, c in ((0, 0), (3, 2)):
        up, down = Y.copy(), Y.copy()
        up[j, c] += 1e-5
        down[j, c] -= 1e-5
        assert (mmd2(X, up, gamma) - mmd2(X, down, gamma)) / 2e-5 == pytest.approx(formula[j, c], rel=1e-4)


def test_less_than_full_rank_loses_the_distances_of_the_landmarks_themselves():
    Y = np.random.default_rng(3).normal(size=(12, 4))
    W = np.linalg.norm(Y[:, None] - Y, axis=2)
    values, vectors = np.linalg.eigh(W)

    def rebuilt(k):
        kept = np.argsort(-np.abs(values))[:k]
        return W @ (vectors[:, kept] / values[kept]) @ vectors[:, kept].T @ W

    assert np.abs(rebuilt(12) - W).max() < 1e-9
    assert np.abs(rebuilt(6) - W).max() > 0.1


def test_models_have_about_unit_length():
    coefs = [make_mixed_regression("C1", seed=seed).coef for seed in range(20)]
    lengths = [np.sum(coef**2, axis=1) for coef in coefs]
    assert np.mean(lengths) == pytest.approx(1.0, abs=0.05)  # N(0, I / d); with N(0, I) it would be 100
    starts = np.random.default_rng(0).normal(size=(20, 3, 100)) / 10
    errors = [bottleneck_distance(start, coef) for start, coef in zip(starts, coefs, strict=True)]
    assert np.mean(errors) == pytest.approx(10**0.15, rel=0.1)  # where the paper's curves begin; with N(0, I) at 14
