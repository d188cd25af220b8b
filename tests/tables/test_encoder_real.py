"""FedTabularEncoder on real traffic, with nothing set: what detectors can make of the encoded rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import fedspan as fs
from fedspan.datasets import anomaly_split
from tests import real_data
from tests.real_data import real_file

pytestmark = pytest.mark.slow


def mahalanobis(train, rows, ridge):
    """Score rows by the distance from the mean of `train`, whose columns are centred."""
    variance, axes = np.linalg.eigh(train.T @ train / len(train))
    return np.sum((rows @ axes) ** 2 / (variance + ridge), axis=1)


def sorted_sites(values, sites=100):
    """Return the site of each row: `sites` of equal size, cut from the rows sorted by `values`."""
    return np.argsort(np.argsort(values, kind="stable")) * sites // len(values)


def test_unsw_with_its_text_columns():
    unsw = real_data.unsw()
    split = anomaly_split(unsw, 17_000)
    frame = pd.DataFrame(unsw.data, columns=unsw.feature_names)
    frame = frame.assign(service=unsw.service, state=unsw.state, proto=unsw.proto)
    train, test = frame.iloc[split.train_rows], frame.iloc[split.test_rows]
    encoder = fs.FedTabularEncoder().fit(fs.federate(train, sites=sorted_sites(train["ct_srv_src"])))
    assert {name: len(known) for name, known in encoder.categories_.items()} == {"service": 7, "state": 5, "proto": 5}
    assert len(encoder.mean_) == 61  # 39 numbers, 17 names, 3 others, whether there is a service, unexpected gaps
    rows = encoder.transform(train)
    auc = roc_auc_score(split.y_test, mahalanobis(rows, encoder.transform(test), 1e-4))
    assert auc == pytest.approx(0.868, abs=0.002)
    # The raw file, cut from the rows by nothing but the names of its columns.
    raw = pd.read_csv(real_file("unsw_nb15_82332.csv.gz"))[list(frame.columns)]
    again = fs.FedTabularEncoder().fit(raw.iloc[split.train_rows])
    np.testing.assert_allclose(again.transform(train), rows, atol=1e-9)


@pytest.fixture(scope="module")
def encoded():
    """4,000 rows of normal traffic, and an encoder that has learned them."""
    unsw = real_data.unsw()
    frame = pd.DataFrame(unsw.data, columns=unsw.feature_names).assign(proto=unsw.proto, state=unsw.state)
    normal = frame.iloc[anomaly_split(unsw, 17_000).train_rows[:4000]]
    return normal, fs.FedTabularEncoder().fit(normal)


@pytest.mark.parametrize("distance", ["residual", "mahalanobis", "combined"])
def test_one_cell_of_garbage_in_normal_traffic_raises_an_alarm(encoded, distance):
    normal, encoder = encoded
    for scale in (True, False):
        detector = fs.FedPCADetector(10, distance=distance, scale=scale).fit(encoder.transform(normal))
        calm = normal[detector.predict(encoder.transform(normal)) == 1].iloc[:39].astype(object)
        for i in range(39):  # a row each
            calm.iloc[i, i] = ("n/a", "garbage", np.inf)[i % 3]
        assert (detector.predict(encoder.transform(calm)) == -1).all()


def test_ton_with_and_without_its_text_columns():
    file = real_file("ton_iot_network_211043.csv.gz")
    ton = real_data.ton()
    split = anomaly_split(ton, 40_000, attacks=56_557)
    tables = {
        "numbers": pd.DataFrame(ton.data, columns=ton.feature_names),
        "raw": pd.read_csv(file).drop(columns=["label", "type"]),
    }
    for name, frame in tables.items():
        train, test = frame.iloc[split.train_rows], frame.iloc[split.test_rows]
        encoder = fs.FedTabularEncoder().fit(train, sites=sorted_sites(train["src_port"], 20))
        rows = encoder.transform(train)
        scores = mahalanobis(rows, encoder.transform(test), 1e-3)
        flagged = scores > np.quantile(mahalanobis(rows, rows, 1e-3), 0.95)
        assert roc_auc_score(split.y_test, scores) > 0.978, name
        assert f1_score(split.y_test, flagged) > 0.985, name
        assert flagged[split.y_test == 0].mean() < 0.06, name
        assert rows.shape[1] < 200, name
