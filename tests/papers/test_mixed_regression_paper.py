"""The paper's numbers, on few seeds, and what its text leaves out or has wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedspan.datasets import make_mixed_regression
from fedspan.linalg import descent_operator, k_means, proximal_operator
from fedspan.mixed_regression.moment_descent_paper import moment_descent_paper
from fedspan.papers import mixed_extras_paper as mixed_extras
from fedspan.papers import mixed_regression_paper as mixed_regression
from fedspan.papers.mixed_runs_paper import MixedSetting, Update, rounds_to

CLUSTER, TOTAL = Update(5, "cluster"), Update(5, "total")


@pytest.mark.slow
@pytest.mark.parametrize(("configuration", "most"), [("C1", 15), ("C3", 65)])
def test_two_phases_reach_the_oracle(configuration, most):
    """Both weights, and the bounds on the error and on the rounds with n_i / N_j."""
    setting = MixedSetting(configuration, 300)
    start = setting.start("moment descent")
    assert start.covered
    assert setting.error(start.models) < 0.5
    for update in (CLUSTER, TOTAL):
        target = setting.refined(setting.made.coef, update)[1][-1]
        models, errors = setting.refined(start.models, update)
        assert errors[-1] <= 1.1 * target
        assert errors[-1] <= (0.06 if configuration == "C3" else 0.047)
        assert setting.accuracy(models) >= 0.999
        if update is CLUSTER:
            assert rounds_to(errors, 1.1 * target) <= most
    for models in (start.models, setting.start("spectral").models):
        assert setting.error(setting.exact(models)[0]) <= 1.02 * setting.ols


@pytest.mark.slow
def test_ifca_fails_in_c1_because_of_the_weights():
    outcome = {"total": 0, "cluster": 0}
    for seed in range(300, 306):
        setting = MixedSetting("C1", seed)
        for update in (TOTAL, CLUSTER):
            target = setting.refined(setting.made.coef, update)[1][-1]
            models, errors = setting.refined(setting.random, update)
            outcome[update.weights] += errors[-1] <= 1.1 * target
            if update is TOTAL and errors[-1] > 1.1 * target:  # a cluster starves
                assert np.bincount(setting.stack.labels(models), minlength=3).min() <= 20
    assert outcome["total"] <= 1
    assert outcome["cluster"] >= 5


@pytest.mark.slow
def test_the_paper_as_written_does_not_start_anywhere():
    setting = MixedSetting("C1", 300)
    start = np.random.default_rng(0).standard_normal(100) / 10
    found = setting.federation.run(moment_descent_paper, n_clusters=3, start=start, separation=1.4)
    assert setting.error(found.models) > 0.9 * setting.error(setting.random)
    assert len(found.anchors) == 10


def test_all_configurations_have_ten_thousand_rows():
    """The paper says N = 1000, and gives numbers of clients and points that make 10,000."""
    for configuration in ("C1", "C2", "C3"):
        assert len(make_mixed_regression(configuration, seed=0).y) == 10_000


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_kappa_is_the_condition_number_of_the_local_operator(steps):
    """The paper's formula is garbled: it is s gamma / (1 - (1 - gamma)^s) for FedAvg, and 1 + gamma for FedProx."""
    gamma = 0.9
    X = np.diag([1.0, np.sqrt(gamma), 1e-6]) * np.sqrt(3)  # rows: eigenvalues of X X' / n are 1, 0.9 and about 0
    X[0, 0] = 0.0
    P = descent_operator(X, 1.0, steps)[[1, 2], [1, 2]] / (X[[1, 2], [1, 2]] / 3)
    assert P.max() / P.min() == pytest.approx(steps * gamma / (1 - (1 - gamma) ** steps), rel=1e-9)
    P = proximal_operator(X, 1.0)[[1, 2], [1, 2]] / (X[[1, 2], [1, 2]] / 3)
    assert P.max() / P.min() == pytest.approx(1 + gamma, rel=1e-9)


def test_sites_of_c1_cannot_fit_a_model_of_their_own():
    """The paper explains one-shot clustering by local fits, but 50 rows do not determine 100 coefficients."""
    setting = MixedSetting("C1", 303)
    X, y, labels = setting.stack.X, setting.stack.y, np.asarray(setting.made.labels)
    assert np.linalg.matrix_rank(X[setting.stack.rows(0)]) == 50
    sites = [setting.stack.rows(i) for i in range(len(labels))]
    local = np.stack([np.linalg.lstsq(X[rows], y[rows], rcond=None)[0] for rows in sites])
    own = setting.made.coef[labels]
    assert np.all(np.linalg.norm(local - own, axis=1) > 0.5 * np.linalg.norm(own, axis=1))
    centres = k_means(local, 3, np.random.default_rng(0), np.ones(len(local))).centres  # ... and yet
    found = np.linalg.norm(local[:, None] - centres, axis=2).argmin(axis=1)
    assert adjusted_rand_score(labels, found) == 1.0


@pytest.mark.slow
def test_a_quick_reproduction_has_all_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(mixed_regression, "CONFIGURATIONS", {"C1": mixed_regression.CONFIGURATIONS["C1"]})
    monkeypatch.setattr(mixed_regression, "missed_clusters", lambda seeds: mixed_extras.missed_clusters(seeds[:1]))
    monkeypatch.setattr(mixed_regression, "new_clients", lambda seeds, draws: mixed_extras.new_clients(seeds, 20))
    for name in ("phase_one_table", "byzantine_table"):
        monkeypatch.setattr(
            mixed_regression, name, lambda quick: mixed_extras.Table("Byzantine sites", ["a"], [["b"]], "")
        )
    monkeypatch.setattr(mixed_regression, "UPDATES", {"s = 5": TOTAL})
    monkeypatch.setattr(mixed_regression, "traffic_table", lambda configuration: mixed_extras.Table("T", ["a"], [], ""))
    results = mixed_regression.run(quick=True)
    page = results.save(tmp_path).read_text()
    for words in (
        "two-phase, s = 5, n_i / N_j",
        "IFCA",
        "Why IFCA fails in C1",
        "a new client",
        "Byzantine sites",
        "Mice",
    ):
        assert words in page
    assert page.count("<svg") == 2
