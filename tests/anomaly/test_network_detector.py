"""Detectors by federated networks: what they find, what their parameters do, and that scoring needs no torch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation.outcomes import EndingKind
from fedspan.sums.moments import deviations, moments
from tests.packages import needs

from .curved_rows import QUICK, UNITS, anomalies, rows

pytestmark = needs("torch")

AUTOENCODER, BIGAN = fs.FedAutoencoderDetector, fs.FedBiGANDetector
both = pytest.mark.parametrize("kind", [AUTOENCODER, BIGAN], ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def fitted():
    X, labels = rows(), np.arange(900) % 6
    return {kind: kind(**QUICK).fit(X, sites=labels) for kind in (AUTOENCODER, BIGAN)}


@pytest.mark.parametrize(("kind", "layers"), [(AUTOENCODER, 4), (BIGAN, 2)], ids=["autoencoder", "bigan"])
def test_finds_what_does_not_fit_together(kind, layers):
    detector = kind(layers=layers, latent=2, max_rounds=60, batch_size=256, random_state=0)
    detector.fit(rows(), sites=np.arange(900) % 6)
    normal, odd = rows(1000, seed=5), anomalies()
    labels = np.repeat([0, 1], [len(normal), len(odd)])
    assert roc_auc_score(labels, -detector.score_samples(np.vstack([normal, odd]))) > 0.95
    assert abs(np.mean(detector.predict(normal) == -1) - 0.05) < 0.03
    assert np.mean(detector.predict(odd) == -1) > 0.7


@both
def test_the_quantile_decides_the_rate_of_outliers(kind, fitted):
    X, labels = rows(), np.arange(900) % 6
    assert np.mean(fitted[kind].predict(X) == -1) == pytest.approx(0.05, abs=1 / 900)
    other = kind(**QUICK, quantile=0.8).fit(X, sites=labels)
    assert np.mean(other.predict(X) == -1) == pytest.approx(0.2, abs=1 / 900)
    np.testing.assert_array_equal(other.weights_, fitted[kind].weights_)


@both
def test_units_do_not_matter_where_columns_are_scaled(kind, fitted):
    X, labels = rows() / UNITS, np.arange(900) % 6
    detector = kind(**QUICK).fit(X, sites=labels)
    np.testing.assert_allclose(detector.weights_, fitted[kind].weights_, atol=2e-3)
    raw = kind(**QUICK, scale=False).fit(X, sites=labels)
    assert raw.scale_ is None
    assert raw.reconstruct(X).shape == X.shape
    found = fs.federate(rows(), sites=labels).run(moments)
    np.testing.assert_array_equal(fitted[kind].mean_, found.mean)
    np.testing.assert_array_equal(fitted[kind].scale_, deviations(found))


@both
def test_history_and_end_of_the_training(kind, fitted):
    detector = fitted[kind]
    assert detector.history_.shape == (7, 5)
    assert detector.history_[:, 0].tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert detector.n_rounds_ == 30
    assert detector.error_ == detector.history_[:, 3].min()
    assert detector.error_ < 0.8 * detector.history_[0, 3]
    assert detector.run_.stopped.kind is EndingKind.ROUNDS_USED_UP
    logged = [entry.values for entry in detector.run_.metrics]
    assert [entry["train_loss"] for entry in logged if "train_loss" in entry]
    assert logged[-1] == {"threshold": -detector.offset_}
    assert detector.weights_.dtype == np.float32
    to_the_end = {**QUICK, "max_rounds": 500, "patience": 3, "check_every": 1}
    patient = kind(**to_the_end).fit(rows(90), sites=np.arange(90) % 2)
    assert patient.run_.stopped.kind is EndingKind.CONVERGED
    assert patient.n_rounds_ < 500


@both
def test_widths(kind):
    X = np.random.default_rng(0).normal(size=(40, 50))
    names = {AUTOENCODER: "decoder", BIGAN: "generator"}
    usual = kind(max_rounds=1).fit(X)
    assert usual.latent_ == 16
    assert kind(max_rounds=1).fit(X[:, :5]).latent_ == 2
    assert kind(max_rounds=1).fit(X[:, :1]).latent_ == 1
    deep = kind(max_rounds=1, layers=4, latent=3).fit(X)
    widths = deep.hidden_.tolist()
    assert widths == {AUTOENCODER: [32, 16, 8], BIGAN: [20, 16, 8]}[kind]
    shapes = {name: array.shape for name, array in deep.state_dict().items()}
    assert [shapes[f"encoder.{i}.weight"] for i in (0, 2, 4, 6)] == [(widths[0], 50), (16, widths[0]), (8, 16), (3, 8)]
    assert shapes[f"{names[kind]}.6.weight"] == (50, widths[0])
    own = kind(max_rounds=1, hidden=(7,), latent=4).fit(X)
    assert own.state_dict()["encoder.0.weight"].shape == (7, 50)


@both
@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"layers": 3}, "layers=3 must be one of 2, 4"),
        ({"layers": 4, "hidden": (8, 4)}, r"hidden=\(8, 4\) must be None or a tuple of layers - 1 = 3 widths"),
        ({"hidden": 8}, "hidden=8 must be None or a tuple"),
        ({"hidden": (0,)}, "a width in hidden=0 must be a whole number of at least 1"),
        ({"latent": 0}, "latent=0"),
        ({"quantile": 1.5}, r"quantile=1.5"),
        ({"local_epochs": 0}, "local_epochs=0 must be a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"max_rounds": 0}, "max_rounds=0"),
        ({"patience": 0}, "patience=0"),
        ({"check_every": -1}, "check_every=-1"),
        ({"step_size": 0.0}, "step_size=0.0 must be a finite number above 0"),
        ({"step_size": np.inf}, "step_size=inf must be a finite number above 0"),
        ({"server_momentum": 1.0}, "server_momentum=1.0 must be a finite number of at least 0 and below 1"),
        ({"held_back": 1.0}, "held_back=1.0 must be a finite number above 0 and below 1"),
        ({"participation": 0}, "participation=0 must be a finite number above 0 and at most 1"),
        ({"aggregator": CoordinateMedian}, "aggregator="),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(kind, wrong, match):
    with pytest.raises(InputError, match=match):
        kind(**wrong).fit(rows(20))


@both
def test_scoring_and_loading_need_no_torch(kind, fitted, tmp_path, monkeypatch):
    X = rows(50, seed=4)
    expected = fitted[kind].score_samples(X)
    fitted[kind].save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "torch", None)
    loaded = fs.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score_samples(X), expected)
    np.testing.assert_array_equal(loaded.predict(X), fitted[kind].predict(X))
    with pytest.raises(MissingPackageError, match=r'needs torch.*pip install "\.\[deep\]"'):
        kind().fit(X)


@both
def test_sites_score_their_own_rows(kind, fitted):
    X, labels = rows(60, seed=4), np.arange(60) % 3
    fed = fs.federate(X, sites=labels)

    @fs.step
    def verdicts(site):
        return {"verdicts": site.X[:, 0].astype(int)}

    replies = fitted[kind].predict(fed).ask(verdicts)
    for name in "012":
        np.testing.assert_array_equal(replies[name]["verdicts"], fitted[kind].predict(X[labels == int(name)]))


@both
def test_an_aggregator_withstands_malicious_sites(kind):
    X, labels = rows(), np.arange(900) % 9
    fed = fs.federate(X, sites=labels).corrupt(attacks.ScaledReverse(100.0), sites=["3", "4"])
    detector = kind(**QUICK, aggregator=CoordinateMedian()).fit(fed)
    normal, odd = rows(500, seed=5), anomalies()
    scores = -detector.score_samples(np.vstack([normal, odd]))
    assert roc_auc_score(np.repeat([0, 1], [500, len(odd)]), scores) > 0.9
    assert np.mean(detector.predict(normal) == -1) < 0.15


@both
def test_extreme_rows_are_scored(kind, fitted):
    X = rows(3)
    X[1] = 1e308
    scores = fitted[kind].score_samples(X)
    assert scores[1] < scores[0]
    assert fitted[kind].predict(X)[1] == -1


@both
def test_columns_that_never_change(kind):
    X = np.hstack([rows(200), np.full((200, 1), 3.0)])
    detector = kind(**QUICK).fit(X, sites=np.arange(200) % 2)
    assert np.isfinite(detector.score_samples(X)).all()
    assert detector.predict(np.hstack([rows(1), [[50.0]]])).tolist() == [-1]


@both
def test_every_option_reaches_the_training(kind, monkeypatch):
    options = {
        "participation": 0.4, "local_epochs": 3, "batch_size": 17, "step_size": 0.07, "server_momentum": 0.3,
        "max_rounds": 9, "patience": 4, "check_every": 2, "held_back": 0.3, "aggregator": CoordinateMedian(),
    }  # fmt: skip
    train, seen = kind._train, {}

    def watched(fed, **given):
        seen.update(given)
        return train(fed, **given)

    monkeypatch.setattr(kind, "_train", staticmethod(watched))
    more = {"adversarial": 0.6} if kind is BIGAN else {}
    kind(**options, **more, hidden=(5,), latent=3).fit(rows(200), sites=np.arange(200) % 5)
    assert seen == {**options, **more, "hidden": (5,), "latent": 3, "n_columns": 6}
