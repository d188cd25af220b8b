"""Means and variances with noise: how far a row moves the sum, what the scaler finds, what it spends and refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import fedspan as fs
from fedspan.aggregation import GeometricMedian
from fedspan.errors import InputError
from fedspan.federation.privacy_spent import ROW_ADDED
from fedspan.privacy import GaussianCenters, GaussianMoments, Ledger, accountant_epsilon, mu_of
from fedspan.sums.noisy_moments import SENSITIVITY, local_noisy_sums
from tests.privacy.noisy_steps import D, moved, neighbours

SECURE = fs.Policy(secure_sum=True)
BOX = {"lower": [0.0, 0.0, -1.0], "upper": [10.0, 200.0, 1.0]}


def table(n=6000):
    rng = np.random.default_rng(0)
    return np.column_stack([rng.normal(5, 1, n), rng.normal(90, 20, n), np.full(n, 0.5)])


@settings(max_examples=60, deadline=None)
@given(neighbours())
def test_no_row_moves_the_sum_beyond_the_bound(tables):
    *tables, bounds = tables
    with pytest.MonkeyPatch.context() as patch:
        assert moved(tables, local_noisy_sums, patch, **bounds) <= SENSITIVITY


@pytest.mark.parametrize(("box", "row"), [(False, 9.0 * np.eye(1, D)), (True, np.full((1, D), -9.0))])
def test_the_bound_is_attained(box, row, monkeypatch):
    bounds = {"center": np.zeros(D), "width": np.full(D, 2.0), "box": box}
    found = moved((np.zeros((3, D)), np.concatenate([np.zeros((3, D)), row])), local_noisy_sums, monkeypatch, **bounds)
    assert found == pytest.approx(SENSITIVITY, rel=1e-6)


@pytest.mark.parametrize("bounds", [BOX, {"clip": 150.0, "center": [5.0, 100.0, 0.0]}], ids=["box", "ball"])
@pytest.mark.parametrize("policy", [None, SECURE], ids=["plain", "secure"])
def test_with_next_to_no_noise_it_is_the_plain_scaler(bounds, policy):
    X = table()
    fed = fs.federate(X, sites=np.arange(len(X)) % 5, policy=policy)
    model = fs.FedStandardScaler(privacy=GaussianMoments(1e7, 1e-5, **bounds)).fit(fed)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-2)
    np.testing.assert_allclose(model.scale_[:2], X.std(axis=0)[:2], rtol=2e-2)
    assert model.scale_[2] == 1.0  # without variance
    assert model.n_samples_seen_ == len(X)


def test_rows_outside_are_drawn_in_and_nan_counts_as_the_centre():
    X = np.array([[1e300, np.nan], [20.0, 1.0], [-20.0, 3.0], [0.0, 2.0]])
    model = fs.FedStandardScaler(privacy=GaussianMoments(1e7, 1e-5, lower=[-10.0, 0.0], upper=[10.0, 4.0])).fit(X)
    np.testing.assert_allclose(model.mean_, [0.0, 2.0], atol=0.1)
    np.testing.assert_allclose(model.var_, [50.0, 0.5], rtol=0.1)


def test_what_is_spent(tmp_path):
    X, privacy = table(), GaussianMoments(2.0, 1e-6, **BOX)
    ledgers = [Ledger(tmp_path / f"{i}.ledger", epsilon=3.0, delta=1e-6, strict=True) for i in range(3)]
    sites = [fs.Site(f"s{i}", X[i::3], ledger=ledger) for i, ledger in enumerate(ledgers)]
    fed = fs.LocalFederation(sites, policy=fs.Policy(quorum="all"))
    model = fs.FedStandardScaler(privacy=privacy).fit(fed)
    spent = model.privacy_
    assert [ledger.spent for ledger in ledgers] == [pytest.approx(2.0)] * 3
    assert spent.worst == pytest.approx(2.0)
    assert spent.unit == ROW_ADDED
    assert spent.simulated == ()
    if spent.accountant:
        assert max(spent.accountant.values()) == pytest.approx(accountant_epsilon({1 / mu_of(2.0, 1e-6): 1}, 1e-6))
    again = fs.FedStandardScaler(privacy=privacy).fit(fed)
    assert again.mean_.tobytes() == model.mean_.tobytes()
    assert ledgers[0].spent == pytest.approx(2.0)
    assert {call.step for call in model.run_.calls} == {"sums.columns", "privacy.ledger", "sums.noisy_sums"}


def test_a_saved_scaler_keeps_its_mechanism(tmp_path):
    model = fs.FedStandardScaler(privacy=GaussianMoments(2.0, 1e-6, **BOX)).fit(table(100))
    model.save(tmp_path / "model")
    loaded = fs.load(tmp_path / "model")
    assert loaded.privacy == model.privacy
    assert loaded.privacy_ == model.privacy_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privacy": GaussianMoments(1.0, 1e-5)}, "must have public bounds of the rows"),
        ({"privacy": GaussianMoments(1.0, 1e-5, lower=0.0)}, "must have public bounds of the rows"),
        ({"privacy": GaussianMoments(1.0, 1e-5, 1.0, lower=0.0, upper=1.0)}, "must have public bounds of the rows"),
        ({"privacy": GaussianMoments(1.0, 1e-5, lower=0.0, upper=[1.0, 0.0, 1.0])}, "must be below upper"),
        ({"privacy": GaussianMoments(1.0, 1e-5, lower=0.0, upper=[1.0, 2.0])}, "upper has 2 numbers"),
        ({"privacy": GaussianMoments(1.0, 1e-5, clip=0.0)}, "clip=0.0 must"),
        ({"privacy": GaussianMoments(1.0, 1e-5, clip=1.0, colluding=1)}, "colluding=1 needs secure sums"),
        ({"privacy": GaussianCenters(1.0, 1e-5, 1.0)}, r"must be None, or fedspan\.privacy\.GaussianMoments"),
        ({"privacy": GaussianMoments(1.0, 1e-5, 1.0), "aggregator": GeometricMedian()}, "does not go with privacy"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        fs.FedStandardScaler(**options).fit(table(30))


def test_landmarks_refuse_it():
    with pytest.raises(InputError, match="goes with scaler, PCA, k-means and PCA detector"):
        fs.FedLandmarks(5, privacy=GaussianMoments(1.0, 1e-5, 1.0)).fit(table(30))
