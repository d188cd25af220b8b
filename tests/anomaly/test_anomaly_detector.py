"""FedAnomalyDetector and its members on generated rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian
from fedspan.errors import InputError

MEMBERS = ("centers", "isolation", "mahalanobis")
KINDS = (fs.FedAnomalyDetector, fs.FedCentersDetector, fs.FedIsolationDetector)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def rows(n, seed=0, d=5):
    """Two groups of correlated rows."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(d, d))
    return rng.normal(size=(n, d)) @ mixing + 6.0 * rng.integers(2, size=(n, 1)) + 100.0


def anomalies(n, seed=7):
    return rows(n, seed) + 8.0 * np.random.default_rng(seed).normal(size=(n, 5))


@pytest.fixture(scope="module")
def fed():
    return fs.federate(rows(600), sites=np.arange(600) % 4)


@every_kind
def test_it_finds_anomalies_and_keeps_its_false_alarms(kind, fed):
    detector = kind(random_state=0).fit(fed)
    new, strange = rows(4000, seed=1), anomalies(1000)
    scores = -detector.score_samples(np.concatenate([new, strange]))
    assert roc_auc_score(np.repeat([0, 1], [4000, 1000]), scores) > 0.9
    assert abs(np.mean(detector.predict(new) == -1) - 0.05) < 0.025
    assert np.mean(detector.predict(strange) == -1) > 0.6


@pytest.mark.parametrize("n", [60, 200])
@every_kind
def test_few_rows_have_no_more_false_alarms(kind, n):
    new = rows(2000, seed=1)
    found = []
    for seed in range(6):
        detector = kind(random_state=seed, quantile=0.9).fit(rows(n, seed=10 + seed), sites=np.arange(n) % 4)
        found.append(np.mean(detector.predict(new) == -1))
    assert abs(np.mean(found) - 0.1) < 0.045


@every_kind
def test_heavy_tails_have_no_more_false_alarms(kind):
    found = []
    for seed in range(8):
        X = np.exp(1.5 * np.random.default_rng(seed).normal(size=(2210, 30)))
        detector = kind(random_state=seed).fit(X[:210], sites=np.arange(210) % 4)
        found.append(np.mean(detector.predict(X[210:]) == -1))
    assert abs(np.mean(found) - 0.05) < 0.02


@every_kind
def test_rows_that_most_are_equal_to_stay_normal(kind):
    for seed in range(3):
        X = (np.random.default_rng(seed).random((2000, 6)) < 0.02).astype(float)
        detector = kind(random_state=seed).fit(X[:1000], sites=np.arange(1000) % 4)
        assert np.mean(detector.predict(X[1000:]) == -1) < 0.08


@pytest.mark.parametrize("kind", [*KINDS, fs.FedPCADetector])
def test_after_a_sudden_shift_a_detector_that_learns_on_is_not_blind(kind):
    rng, sites = np.random.default_rng(0), np.arange(1200) % 4
    mixing, detector = rng.normal(size=(4, 4)), kind(random_state=0)
    false, found = [], []
    for hour in range(8):
        X = rng.normal(size=(1200, 4)) @ mixing
        odd = X[:300] + 8.0 * rng.normal(size=(300, 4))
        if hour >= 3:  # a column in another unit
            X[:, 0] *= 10.0
            odd[:, 0] *= 10.0
        if hour:
            false.append(np.mean(detector.predict(X) == -1))
            found.append(np.mean(detector.predict(odd) == -1))
        detector.partial_fit(X, sites=sites, batch=str(hour), decay=0.8)
    assert min(found) > 0.9
    assert false[2] > 0.5  # the window of the shift
    assert max(false[4:]) < 0.15


@every_kind
def test_batches_of_few_rows_have_no_more_false_alarms(kind):
    found = []
    for seed in range(4):
        X, sites = rows(2300, seed=20 + seed), np.arange(3) % 3
        detector = kind(random_state=0).partial_fit(X[:120], sites=np.arange(120) % 3, batch="first")
        for number, part in enumerate(np.split(X[120:300], 60)):
            detector.partial_fit(part, sites=sites, batch=str(number))
        found.append(np.mean(detector.predict(X[300:]) == -1))
    assert abs(np.mean(found) - 0.05) < 0.03


@every_kind
def test_sites_score_their_own_rows_as_the_coordinator_would(kind, fed):
    detector = kind(random_state=0).fit(fed)
    scored = detector.score_samples(fed)
    by_site = scored.ask(seen)
    X = rows(600)
    for i, site in enumerate(fed.sites):
        np.testing.assert_allclose(by_site[site]["X"][:, 0], detector.score_samples(X[i::4]), rtol=1e-9)
    assert detector.score_one(X[0]) == pytest.approx(detector.score_samples(X[:1])[0])


@fs.step("tests.seen_scores", reveals="rows")
def seen(site):
    return {"X": site.X}


@every_kind
def test_explanations_name_the_column_that_is_strange(kind):
    X = np.random.default_rng(0).normal(size=(600, 5)) + 50.0  # independent columns
    detector = kind(random_state=0).fit(X, sites=np.arange(600) % 4)
    x = np.full(5, 50.0)
    x[3] += 9.0
    shares = detector.explain(np.stack([x, x]))
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares >= 0).all()
    assert shares[0].argmax() == 3
    assert detector.top_features(x, 1)[0][0] == "feature 3"
    with pytest.raises(InputError, match="must be one row of 5 numbers"):
        detector.score_one(x[:3])
    with pytest.raises(InputError, match="NaN or infinity"):
        detector.explain(np.full(5, np.nan))


@every_kind
def test_secure_sums_give_the_same_detector(kind):
    X, sites = rows(240), np.arange(240) % 4
    plain = kind(random_state=0).fit(fs.federate(X, sites=sites))
    secure = kind(random_state=0).fit(fs.federate(X, sites=sites, policy=fs.Policy(secure_sum=True)))
    np.testing.assert_allclose(secure.score_samples(X), plain.score_samples(X), rtol=1e-6)
    assert secure.offset_ == pytest.approx(plain.offset_, rel=1e-6)


@every_kind
def test_saved_and_loaded_it_is_the_same(kind, fed, tmp_path):
    detector = kind(random_state=0).fit(fed)
    detector.save(tmp_path / "model.fedspan")
    loaded = fs.load(tmp_path / "model.fedspan")
    X = anomalies(50)
    np.testing.assert_array_equal(loaded.score_samples(X), detector.score_samples(X))
    np.testing.assert_array_equal(loaded.explain(X), detector.explain(X))


@pytest.mark.parametrize(
    "members", [("centers",), ("mahalanobis",), ("isolation",), ("isolation", "centers"), ("mahalanobis", "isolation")]
)
def test_members_are_chosen(members, fed):
    detector = fs.FedAnomalyDetector(members=members, random_state=0).fit(fed)
    assert detector.members_ == tuple(sorted(members))
    assert detector.member_scores(rows(10)).shape == (10, len(members))
    assert np.mean(detector.predict(anomalies(500)) == -1) > 0.5


def test_a_single_member_orders_rows_as_its_own_estimator(fed):
    X = np.concatenate([rows(300, seed=1), anomalies(300)])
    alone = fs.FedPCADetector().fit(fed)
    together = fs.FedAnomalyDetector(members=("mahalanobis",)).fit(fed)
    np.testing.assert_allclose(together.member_scores(X)[:, 0], -alone.score_samples(X), rtol=1e-9)
    order = np.argsort(-alone.score_samples(X))
    assert (np.diff(-together.score_samples(X)[order]) >= 0).all()


def test_wide_rows_have_no_covariance(monkeypatch):
    monkeypatch.setattr("fedspan.anomaly.pca_detector.WIDEST", 4)
    detector = fs.FedAnomalyDetector(random_state=0).fit(rows(300), sites=np.arange(300) % 3)
    assert detector.whitening_ is None
    assert abs(np.mean(detector.predict(rows(3000, seed=1)) == -1) - 0.05) < 0.03


@every_kind
def test_malicious_sites_do_not_disable_it(kind):
    rule = GeometricMedian() if kind is fs.FedAnomalyDetector else CoordinateMedian()
    detector = kind(aggregator=rule, random_state=0)
    for seed in (0, 5):
        fed = fs.federate(rows(3000, seed=seed), sites=np.arange(3000) % 10)
        detector.partial_fit(fed.corrupt(attacks.ScaledReverse(50.0), sites=fed.sites[:3]))
    assert np.mean(detector.predict(anomalies(500)) == -1) > 0.6
    assert abs(np.mean(detector.predict(rows(3000, seed=1)) == -1) - 0.05) < 0.03


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fs.FedAnomalyDetector(members=()), "must be a tuple of different names"),
        (lambda: fs.FedAnomalyDetector(members=("lof",)), "must be a tuple of different names"),
        (lambda: fs.FedAnomalyDetector(members="centers"), "must be a tuple of different names"),
        (lambda: fs.FedAnomalyDetector(members=("centers", "centers")), "must be a tuple of different names"),
        (
            lambda: fs.FedCentersDetector(aggregator=CoordinateMedian(), least_rows=3),
            "has no effect with an aggregator",
        ),
        (lambda: fs.FedAnomalyDetector(quantile=1.2), "quantile=1.2 must"),
        (lambda: fs.FedAnomalyDetector(n_centers=0), "n_centers=0 must"),
        (lambda: fs.FedAnomalyDetector(n_trees=0), "n_trees=0 must"),
        (lambda: fs.FedIsolationDetector(depth=20), "depth=20 must"),
        (lambda: fs.FedIsolationDetector(subsample=1), "subsample=1 must"),
        (lambda: fs.FedCentersDetector(n_centers=500), "n_clusters=500 must"),
    ],
)
def test_what_cannot_work_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make().fit(rows(60))


@every_kind
def test_degenerate_rows(kind):
    X = rows(40)
    X[:, 2] = 1.0  # a constant column
    X[:20] = X[0]  # many equal rows
    detector = kind(random_state=0).fit(X, sites=np.repeat([0, 1, 2], [1, 2, 37]))
    assert detector.predict(X[:1])[0] == 1
    assert np.isfinite(detector.score_samples(X)).all()
    few = kind(random_state=0).fit(X[18:22])
    assert np.isfinite(few.score_samples(X)).all()
    X[3, 1] = np.nan
    with pytest.raises(InputError, match="X contains NaN"):
        kind().fit(X)
