"""Detectors on real network traffic: what they find, and the false positive rates of their thresholds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan import attacks
from fedspan.datasets import anomaly_split
from tests import real_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unsw():
    return real_data.unsw()


@pytest.fixture(scope="module")
def ton():
    return real_data.ton()


def unsw_split(unsw, seed, data=None):
    split = anomaly_split(unsw, 17_000, seed=seed)
    return with_sites(split, unsw, unsw.data if data is None else data, "ct_srv_src")


def ton_split(ton, seed, data=None):
    split = anomaly_split(ton, 40_000, attacks=56_557, seed=seed)
    return with_sites(split, ton, ton.data if data is None else data, "src_port")


def with_sites(split, bunch, data, by):
    """Return training rows, their hundred sites (sorted by a column), test rows and their labels."""
    key = split.X_train[:, list(bunch.feature_names).index(by)]
    sites = np.empty(len(key), dtype=int)
    sites[np.argsort(key, kind="stable")] = np.arange(len(key)) * 100 // len(key)
    return data[split.train_rows], sites, data[split.test_rows], split.y_test


def log(X):
    return np.sign(X) * np.log1p(np.abs(X))


def auc(detector, X, y):
    return roc_auc_score(y, -detector.score_samples(X))


def test_the_residual_is_that_of_pooled_pca_on_unsw(unsw):
    found = []
    for seed in (0, 1, 2):
        train, sites, test, y = unsw_split(unsw, seed)
        detector = fs.FedPCADetector(10, solver="covariance", distance="residual").fit(train, sites=sites)
        scaler = StandardScaler().fit(train)
        pca = PCA(10, svd_solver="full").fit(scaler.transform(train))
        Z = scaler.transform(test)
        pooled = np.sum((Z - pca.inverse_transform(pca.transform(Z))) ** 2, axis=1)
        np.testing.assert_allclose(-detector.score_samples(test), pooled, rtol=1e-6)
        found.append(auc(detector, test, y))
    # The splits differ by as much as 0.005 from their mean.
    assert np.mean(found) == pytest.approx(0.731, abs=0.005)


def test_the_residual_on_ton(ton):
    train, sites, test, y = ton_split(ton, 0, log(ton.data))
    detector = fs.FedPCADetector(10, solver="covariance", distance="residual").fit(train, sites=sites)
    assert auc(detector, test, y) == pytest.approx(0.894, abs=0.005)


@pytest.mark.parametrize("distance", ["mahalanobis", "combined"])
def test_mahalanobis_distances_find_nearly_all_attacks_in_ton(ton, distance):
    train, sites, test, y = ton_split(ton, 0, log(ton.data))
    flagged = fs.FedPCADetector(10, distance=distance).fit(train, sites=sites).predict(test) == -1
    assert f1_score(y, flagged) >= 0.985
    assert np.mean(flagged[y == 0]) <= 0.06


def test_categories_and_the_combined_score_find_most_attacks_in_unsw(unsw):
    text = {name: unsw[name] for name in ("service", "state", "proto")}
    frame = pd.DataFrame(log(unsw.data), columns=unsw.feature_names).assign(**text)
    train_rows, sites, test_rows, y = unsw_split(unsw, 0, np.arange(len(frame)))
    fed, test = fs.federate(frame.iloc[train_rows], sites=sites), frame.iloc[test_rows]
    detector = fs.FedPCADetector(10, distance="combined", scale=False)
    model = make_pipeline(fs.FedTabularEncoder(), detector).fit(fed)  # no test row is seen, nor its categories
    assert auc(model, test, y) >= 0.87
    assert abs(np.mean(model.predict(test[y == 0]) == -1) - 0.05) < 0.01


@pytest.mark.parametrize(("distance", "quantile"), [("residual", 0.9), ("mahalanobis", 0.95), ("combined", 0.99)])
def test_the_false_positive_rate_on_unseen_rows_follows_the_quantile(unsw, ton, distance, quantile):
    for split in (unsw_split(unsw, 0, log(unsw.data)), ton_split(ton, 0, log(ton.data))):
        train, sites, test, y = split
        detector = fs.FedPCADetector(10, distance=distance, quantile=quantile).fit(train, sites=sites)
        assert abs(np.mean(detector.predict(test[y == 0]) == -1) - (1 - quantile)) < 0.01


@pytest.mark.parametrize("kind", ["alternating", "noise", "reverse"])
def test_malicious_sites_do_not_disable_a_resilient_detector(unsw, kind):
    """A quarter of the sites are malicious in every reply; rows are dealt out at random."""
    train, _, test, y = unsw_split(unsw, 0, log(unsw.data))
    fed = fs.federate(train, sites=np.arange(len(train)) % 50)
    attack = {
        "alternating": attacks.Alternating(),
        "noise": attacks.RandomNoise(10.0),
        "reverse": attacks.ScaledReverse(100.0),
    }[kind]
    honest = fs.FedPCADetector(10, solver="subspace_median", distance="residual").fit(fed)
    corrupted = fed.corrupt(attack, sites=fed.sites[::4])
    detector = fs.FedPCADetector(10, solver="subspace_median", distance="residual").fit(corrupted)
    assert auc(detector, test, y) > auc(honest, test, y) - 0.03
    assert abs(np.mean(detector.predict(test[y == 0]) == -1) - 0.05) < 0.015


def test_sites_on_their_own_do_worse(ton):
    train, sites, test, y = ton_split(ton, 0, log(ton.data))
    tenth = sites // 10  # ten sites, as sorted as the hundred
    alone = fs.LocalPCADetector(10).fit(train, sites=tenth)
    mean = np.mean([roc_auc_score(y, -alone.score_samples(test, site=name)) for name in alone.sites_])
    together = auc(fs.FedPCADetector(10, distance="residual").fit(train, sites=tenth), test, y)
    assert mean < together - 0.1
