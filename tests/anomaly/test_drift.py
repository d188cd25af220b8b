"""Drift: found soon where it is, and rarely where it is not."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.drift import baseline_of, compared
from fedspan.errors import InputError

MIXING = np.random.default_rng(9).normal(size=(6, 6))


def rows(n, seed=0):
    X = np.random.default_rng(seed).standard_t(4, size=(n, 6)) @ MIXING + 30.0
    X[:, 5] = np.random.default_rng(seed + 1).random(n) < 0.02  # a rare service
    return X


@pytest.fixture(scope="module")
def model():
    return fs.FedPCADetector().fit(rows(4000), sites=np.arange(4000) % 4)


def window(seed, sites=4):
    return fs.federate(rows(1000 * sites, seed=seed), sites=np.arange(1000 * sites) % sites)


@pytest.fixture(scope="module")
def before(model):
    return baseline_of(model, window(1))


def unit(X):
    X[:, 2] *= 1000.0


def service(X):
    X[: len(X) // 2, 5] = 1.0


def rotation(X):
    angle = np.deg2rad(20)
    a, b = X[:, 0] - 30.0, X[:, 1] - 30.0
    X[:, 0], X[:, 1] = np.cos(angle) * a - np.sin(angle) * b + 30.0, np.sin(angle) * a + np.cos(angle) * b + 30.0


@pytest.mark.parametrize(("shift", "column"), [(unit, "feature 2"), (service, "feature 5"), (rotation, None)])
def test_a_shift_is_found_in_the_first_window_with_its_column(shift, column, model, before):
    for seed in range(10):
        X = rows(4000, seed=50 + seed)
        shift(X)
        found = fs.drift(model, fs.federate(X, sites=np.arange(4000) % 4), baseline=before)
        assert found.drifted
        if column is not None:
            assert found.columns[0] == column
    assert "drift" in found.summary()


def test_a_site_that_moves_alone_is_named(model, before):
    X, sites = rows(4000, seed=70), np.arange(4000) % 4
    X[sites == 2] *= 1.3
    found = fs.drift(model, fs.federate(X, sites=sites), baseline=before)
    assert found.moved_sites == ("2",)
    assert found.drifted


def test_false_alarms_are_rare(model, before):
    found = [fs.drift(model, window(100 + seed), baseline=before) for seed in range(60)]
    assert not any(one.drifted for one in found)
    assert min(one.p_value for one in found) > 0.001
    assert all(one.rows == 4000 for one in found)


@pytest.mark.parametrize("kind", [fs.FedPCADetector, fs.FedIsolationDetector, fs.FedAnomalyDetector])
def test_without_a_baseline_rows_are_compared_with_those_of_the_training(kind):
    model = kind(random_state=0).fit(rows(2000), sites=np.arange(2000) % 4)
    assert not fs.drift(model, rows(2000, seed=3)).drifted
    X = rows(2000, seed=3)
    X[:, 1] += 4.0
    assert fs.drift(model, X).columns[0] == "feature 1"


def test_columns_are_compared_with_those_of_the_first_fit():
    apart = 6.0 * np.eye(6)[1]
    learned = fs.FedPCADetector().partial_fit(rows(2000)).partial_fit(rows(4000, seed=5) + apart, decay=0.5)
    assert fs.drift(learned, rows(2000, seed=6) + apart).columns[0] == "feature 1"
    assert fs.drift(learned, rows(2000, seed=6)).columns == ()


def test_a_private_detector_compares_its_scores_alone():
    mechanism = fs.privacy.GaussianMoments(50.0, 1e-5, clip=300.0)
    model = fs.FedPCADetector(privacy=mechanism).fit(rows(2000))
    assert [one.of for one in fs.drift(model, rows(2000, seed=3)).moved] == ["score"]


def test_secure_sums_compare_all_rows_together(model):
    X = rows(800, seed=4)
    X[:, 1] += 5.0
    fed = fs.federate(X, sites=np.arange(800) % 4, policy=fs.Policy(secure_sum=True))
    found = fs.drift(model, fed, baseline=baseline_of(model, window(1)))
    assert not found.sites
    assert "feature 1" in found.columns


@pytest.mark.parametrize("kind", [fs.FedAnomalyDetector, fs.FedIsolationDetector, fs.FedCentersDetector])
def test_other_detectors(kind):
    model = kind(random_state=0).fit(rows(1000))
    X = rows(1000, seed=2)
    X[:, 0] += 20.0
    assert fs.drift(model, X, baseline=rows(1000, seed=1)).drifted
    assert not fs.drift(model, rows(1000, seed=3), baseline=rows(1000, seed=1)).drifted


def test_what_cannot_work_is_refused(model):
    with pytest.raises(InputError, match="takes a detector"):
        fs.drift(fs.FedPCA(2), rows(10))
    with pytest.raises(InputError, match="alpha=1 must"):
        fs.drift(model, rows(10), alpha=1)


def test_training_scores_that_are_nearly_those_of_new_rows_are_no_drift():
    detector = fs.FedCentersDetector(random_state=0).fit(rows(4000), sites=np.arange(4000) % 4)
    assert not fs.drift(detector, rows(40_000, seed=5)).drifted


@pytest.mark.parametrize(
    ("of", "margin", "beyond_chance"), [("score", 0.05, False), ("score", 0.0, True), ("column", 0.05, True)]
)
def test_a_difference_within_the_margin_counts_for_columns_and_not_for_scores(of, margin, beyond_chance):
    before, now = np.array([5000.0, 5000.0]), np.array([5400.0, 4600.0])
    (one,) = compared([before], [now], [(of, "a")], margin=margin)
    assert (one.p_value < 0.001) == beyond_chance
    assert one.difference == pytest.approx(0.04)


def test_a_table_with_sites_is_compared_as_its_federation_and_alike_rows_count_as_fewer(model, before):
    X, sites = rows(2000, seed=7), np.arange(2000) % 4
    X[:, 5] = np.arange(2000) % 8 == 0  # 12 % instead of 2 % of a rare service
    found = fs.drift(model, X, sites=sites, baseline=before)
    assert repr(found) == repr(fs.drift(model, fs.federate(X, sites=sites), baseline=before))
    assert sorted(found.sites) == ["0", "1", "2", "3"]
    fewer = fs.drift(model, X, sites=sites, baseline=before, alike=20.0)
    assert found.p_value < 1e-6
    assert fewer.p_value > 0.05
    assert found.drifted
    assert not fewer.drifted
