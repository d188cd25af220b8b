"""Errata of the papers that no other test shows: docs/errata.md names these by their names."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.attacks import Orthogonal
from fedspan.datasets import make_subspace_sites
from fedspan.linalg import kernel_matrix, mmd2, subspace_distance
from fedspan.papers.fed_tsne.learned_paper import PaperRows, learned
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.resilient_power import resilient_power
from fedspan.pca.subspace_median import subspace_median
from fedspan.privacy import GaussianGradient, epsilon_of, sigma_of

from ..pca.consensus_sites import SITES, federation, run

# Federated PCA on Grassmann manifolds. Table I: accuracy, precision, recall, FNR; normal rows and attacks of the tests.
NORMAL, ATTACKS = {"unsw": 20_000, "ton": 10_000}, {"unsw": 45_332, "ton": 56_557}
TABLE_1 = {
    ("FedAE", "unsw"): (80.88, 80.66, 95.27, 4.73),
    ("FedAE-2", "unsw"): (82.80, 83.45, 93.80, 6.20),
    ("FedPE", "unsw"): (82.15, 81.06, 95.14, 6.25),
    ("FedPG", "unsw"): (81.95, 82.82, 93.36, 6.63),
    ("FedAE", "ton"): (87.28, 93.52, 91.36, 8.64),
    ("FedAE-2", "ton"): (89.09, 94.68, 92.34, 7.66),
    ("FedPE", "ton"): (87.06, 89.82, 94.94, 6.13),
    ("FedPG", "ton"): (88.94, 92.79, 94.32, 5.68),
}


def implied(precision, recall, data):
    """Return the accuracy and the false positive rate that follow, in percent."""
    hits = recall / 100 * ATTACKS[data]
    false = hits * (100 / precision - 1)
    return 100 * (hits + NORMAL[data] - false) / (NORMAL[data] + ATTACKS[data]), 100 * false / NORMAL[data]


def test_one_row_of_table_1_contradicts_itself():
    wrong = set()
    for (method, data), (accuracy, precision, recall, missed) in TABLE_1.items():
        follows = implied(precision, recall, data)[0]
        if abs(recall + missed - 100) > 0.02 or abs(follows - accuracy) > 0.1:
            wrong.add(method)
    assert wrong == {"FedPE"}
    assert implied(81.06, 95.14, "unsw")[0] == pytest.approx(81.2, abs=0.05)
    assert implied(89.82, 94.94, "ton")[0] == pytest.approx(86.6, abs=0.05)
    assert implied(82.82, 93.36, "unsw")[1] == pytest.approx(44, abs=0.5)
    assert implied(92.79, 94.32, "ton")[1] == pytest.approx(41, abs=0.5)


def test_flagging_everything_is_accurate_where_most_rows_are_attacks():
    shares = {data: 100 * ATTACKS[data] / (ATTACKS[data] + NORMAL[data]) for data in NORMAL}
    assert shares == pytest.approx({"unsw": 69.4, "ton": 85.0}, abs=0.05)


def test_the_one_sided_constraint_allows_what_is_not_orthonormal():
    U = np.array([[0.5, -0.5], [0.0, 0.5], [0.0, 0.0]])  # short columns, at an obtuse angle
    assert np.sum(np.maximum(0.0, U.T @ U - np.eye(2)) ** 2) == 0.0
    assert np.abs(U.T @ U - np.eye(2)).max() > 0.5


def test_rho_of_the_paper_does_not_bring_the_sites_together():
    """In the corrected algorithm, so that nothing but rho differs: 1 over rows and the largest eigenvalue."""
    rows = np.mean([len(site) for site in SITES])
    of_the_paper = 1.0 / rows / max(np.linalg.eigvalsh(site.X.T @ site.X / rows)[-1] for site in SITES)
    apart = {rho: run(federation(), rho=rho, max_rounds=300)[2].metric("consensus")[-1] for rho in (0.35, of_the_paper)}
    assert apart[0.35] < 1e-3
    assert apart[of_the_paper] > 0.5


# Byzantine-resilient subspace estimation.


def test_the_size_of_an_orthogonal_lie_matters_to_the_power_method_alone():
    data = make_subspace_sites(60, 4, 3, 80, seed=0)
    fed = fs.federate(data.X, sites=data.sites)
    errors = {}
    for scale in (3.0, 100.0):
        bad = fed.corrupt(Orthogonal(scale), sites=fed.sites[:1])
        power = bad.run(resilient_power, rank=4, n_columns=60)[0]
        errors[scale] = subspace_distance(power, data.basis), bad.run(subspace_median, rank=4).basis
    assert errors[100.0][0] > 2 * errors[3.0][0]
    assert subspace_distance(errors[3.0][1], errors[100.0][1]) < 1e-6


def test_batches_of_means_help_the_node_and_not_the_eigenspace():
    errors = {}
    for seed in range(5):
        data = make_subspace_sites(60, 4, 12, 40, tail=0.015, seed=seed)
        fed = fs.federate(data.X, sites=data.sites, seed=seed)
        bad = fed.corrupt(Orthogonal(3.0), sites=fed.sites[:1])
        for output in ("node", "eigenspace"):
            one_shot = bad.run(subspace_median, rank=4, output=output)
            batches = bad.run(median_of_means, rank=4, n_columns=60, groups=6, iterations=5, output=output)
            for way, found in (("one shot", one_shot), ("batches", batches)):
                errors.setdefault((output, way), []).append(subspace_distance(found.basis, data.basis))
    mean = {key: np.mean(values) for key, values in errors.items()}
    assert mean["node", "batches"] < 0.8 * mean["node", "one shot"]  # sqrt(1 / 2) for two sites a batch
    assert mean["eigenspace", "batches"] == pytest.approx(mean["eigenspace", "one shot"], rel=0.15)


# Federated t-SNE and UMAP.


def test_posted_distances_give_rows_away_whatever_noise_the_gradients_had():
    X = np.random.default_rng(0).uniform(size=(60, 4))
    privacy = GaussianGradient(1.0, 1e-5, center=0.5, scale=0.3)
    rows = PaperRows("uniform", X, np.arange(60) % 2, 12, (0.0, 1.0))
    plain, private = (learned(rows, rows.sites("IID"), noise, rounds=3) for noise in (None, privacy))
    assert private.epsilon == pytest.approx(1.0, rel=0.05)
    assert np.abs(private.model.landmarks_ - plain.model.landmarks_).max() > 1e-2
    assert private.leak().relative_error < 1e-5


def test_a_matrix_of_distances_is_indefinite_with_a_zero_diagonal():
    X = np.random.default_rng(0).normal(size=(20, 3))
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    values = np.linalg.eigvalsh(D)
    assert values[-1] > 0
    assert np.all(values[:-1] < 0)
    assert D.diagonal().max() == 0.0


def test_the_zero_matrix_satisfies_the_bounds_of_the_kernel():
    X = np.random.default_rng(0).normal(size=(30, 3))
    K = kernel_matrix(X, X, 0.5)
    n = len(X)
    assert np.linalg.norm(K - 0.0, 2) <= n < 2 * n  # Theorem 5 allows at least 2 n
    assert np.linalg.norm(K - 0.0) <= n < 2 * n  # in the Frobenius norm at least 2 k^(1/4) n


def test_the_unbiased_statistic_of_mmd2_may_be_negative():
    X = np.random.default_rng(0).normal(size=(40, 3))  # landmarks that are the rows: the best there are
    K = kernel_matrix(X, X, 0.2)
    unbiased = 2 * (K.sum() - 40) / (40 * 39) - 2 * K.mean()
    assert unbiased < -0.01
    assert mmd2(X, X, 0.2) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("epsilon", [10.0, 100.0])
def test_the_textbook_formula_is_too_small_for_large_epsilon(epsilon):
    delta = 1e-5
    textbook = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    assert textbook < sigma_of(epsilon, delta)
    assert epsilon_of(1 / textbook, delta) > epsilon
    assert np.sqrt(2 * np.log(1.25 / delta)) / 0.5 > sigma_of(0.5, delta)  # where it is proved, it is enough
