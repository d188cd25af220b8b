"""Isolation, centres and FedAnomalyDetector with noise: what is found, what is spent, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.errors import InputError
from fedspan.gateway.scorer import Scorer
from fedspan.privacy import GaussianMoments, Ledger

SECURE = fs.Policy(secure_sum=True)
BOX = {"lower": -12.0, "upper": [12.0, 12.0, 12.0, 120.0]}
BALL = {"clip": 90.0, "center": [1.5, 1.5, 1.5, 15.0]}
KINDS = (fs.FedIsolationDetector, fs.FedCentersDetector, fs.FedAnomalyDetector)


def rows(n=800, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 4)) + 3.0 * (np.arange(n) % 2)[:, None]) * [1.0, 1.0, 1.0, 10.0]


def measured(model):
    """Return false alarms, and the AUC against rows between and around the two groups."""
    new, odd = rows(2000, seed=1), 2.0 * (rows(500, seed=2) - rows(500, seed=3))
    scores = -model.score_samples(np.concatenate([new, odd]))
    return np.mean(scores[:2000] > -model.offset_), roc_auc_score(np.repeat([0, 1], [2000, 500]), scores)


@pytest.mark.parametrize(("kind", "bounds"), zip(KINDS, (BALL, BOX, BOX), strict=True))
def test_with_next_to_no_noise_it_is_nearly_the_plain_detector(kind, bounds, tmp_path):
    X = rows()
    plain = kind(random_state=0).fit(X, sites=np.arange(len(X)) % 4)
    noisy = kind(privacy=GaussianMoments(1e6, 1e-5, **bounds), random_state=0).fit(X, sites=np.arange(len(X)) % 4)
    (_, usual), (alarms, found) = measured(plain), measured(noisy)
    assert alarms == pytest.approx(0.05, abs=0.02)
    assert found > usual - 0.03
    noisy.export(tmp_path / "detector.npz")
    new = rows(50, seed=4)
    np.testing.assert_allclose(Scorer.load(tmp_path / "detector.npz").score(new), -noisy.score_samples(new), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_anomalies_are_found_with_noise_under_secure_sums(kind):
    X = rows(2000)
    fed = fs.federate(X, sites=np.arange(len(X)) % 4, policy=SECURE)
    alarms, auc = measured(kind(privacy=GaussianMoments(4.0, 1e-5, **BOX), random_state=0).fit(fed))
    assert alarms == pytest.approx(0.05, abs=0.03)
    assert auc > 0.7


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        (fs.FedIsolationDetector, {"sums.noisy_sums": 1, "anomaly.noisy_leaf_counts": 1, "sums.noisy_counts": 5}),
        (fs.FedCentersDetector, {"sums.noisy_sums": 1, "clustering.noisy_cells": 3, "sums.noisy_counts": 5}),
        (
            fs.FedAnomalyDetector,
            {"pca.noisy_gram": 1, "anomaly.noisy_leaf_counts": 1, "clustering.noisy_cells": 3, "sums.noisy_counts": 15},
        ),
    ],
)
def test_one_budget_is_spent_for_all_members(kind, steps, tmp_path):
    X = rows(1500)  # with fewer, the noise of real ledgers, which differs from run to run, may hide all variance
    ledgers = [Ledger(tmp_path / f"{i}.ledger", epsilon=9.0, delta=1e-6, strict=True) for i in range(3)]
    sites = [fs.Site(f"s{i}", X[i::3], ledger=ledger) for i, ledger in enumerate(ledgers)]
    model = kind(privacy=GaussianMoments(8.0, 1e-6, **BOX), random_state=0)
    model.fit(fs.LocalFederation(sites, policy=fs.Policy(quorum="all")))
    # Searches for quantiles may make the same request, which plain sums charge once. Each costs about .08, and the
    # noise decides how many are equal; the first ones of two searches always are.
    assert all(7.7 < ledger.spent < 8.0 + 1e-9 for ledger in ledgers)
    assert model.privacy_.worst == pytest.approx(8.0)
    assert model.privacy_.accountant["s0"] == pytest.approx(8.0, rel=0.02)
    called = [call.step for call in model.run_.calls]
    assert {step: called.count(step) for step in set(called) - {"sums.columns", "privacy.ledger"}} == steps
    with pytest.raises(InputError, match=r"takes no privacy"):
        model.partial_fit(X)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *[(kind, {"quantile": 1.0}, "quantile=1.0 must") for kind in KINDS],
        *[(kind, {"privacy": 1.0}, "must be None, or") for kind in KINDS],
        *[(kind, {"least_rows": 3}, "least_rows=3 has no effect") for kind in KINDS[1:]],
        (KINDS[0], {"aggregator": fs.aggregation.CoordinateMedian()}, "does not go with privacy"),
    ],
)
def test_what_cannot_work_is_refused(kind, options, message):
    with pytest.raises(InputError, match=message):
        kind(**{"privacy": GaussianMoments(8.0, 1e-5, **BOX), **options}).fit(rows(60))
