"""Errata of print and of proofs, which no other test would meet; and every erratum names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import fedspan as fs
from fedspan.datasets import make_few_shot_tasks, make_mixed_regression, make_subspace_sites
from fedspan.linalg import q_factor
from fedspan.linalg.gaussian_kernel import mmd2
from fedspan.protocols.consensus import augmented_lagrangian
from fedspan.protocols.feddl import local_pull
from fedspan.protocols.fedpg import stiefel
from fedspan.protocols.subspace_median import subspace_median

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"


def entries():
    """Return the errata: what the paper has, and what shows it."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [(cell[0].strip(), cell[2]) for cell in cells if cell[0].strip() != "in the paper"]


def test_the_page_has_errata_of_five_papers():
    assert len(entries()) > 50
    assert PAGE.read_text(encoding="utf-8").count("| in the paper | here | shown by |") == 5


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


@pytest.mark.parametrize("attack", [fs.attacks.Orthogonal(3.0), fs.attacks.ScaledReverse(10.0), fs.attacks.SignFlip()])
def test_the_node_is_within_13_times_the_worst_honest_error(attack):
    # The exact median of four liars among eleven is within 6 = 2 (1 - 0.4) / (1 - 2 * 0.4) of the truth, the nearest
    # honest node within 7 of the median, and so is whatever node is nearer: 13.
    data = make_subspace_sites(40, 3, 11, 60, tail=0.05, seed=0)
    fed = fs.federate(data.X, sites=data.sites)
    own = {site: np.linalg.svd(data.X[data.sites == site])[2][:3].T for site in fed.sites[4:]}
    worst = max(fs.linalg.subspace_distance(U, data.basis) for U in own.values())
    found = fed.corrupt(attack, sites=fed.sites[:4]).run(subspace_median, rank=3, output="node", complete=True)
    assert fs.linalg.subspace_distance(found.basis, data.basis) <= 13 * worst


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
    lengths = [np.sum(make_mixed_regression("C1", seed=seed).coef ** 2, axis=1) for seed in range(20)]
    assert np.mean(lengths) == pytest.approx(1.0, abs=0.05)  # N(0, I / d); with N(0, I) it would be 100
