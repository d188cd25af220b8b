"""Thresholds for new sites, for each site, and under drift."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.parts.recalibration import edges_around, usual_counts
from fedspan.errors import FedspanError, InputError


def rows(n, seed=0, spread=1.0):
    return spread * np.random.default_rng(seed).normal(size=(n, 4))


@pytest.fixture
def detector():
    return fs.FedPCADetector().fit(rows(4000), sites=np.arange(4000) % 4)


def alarms(detector, X, site=None):
    return np.mean(detector.predict(X, site=site) == -1)


def test_a_new_site_gets_its_false_alarms_back(detector):
    wider = rows(500, seed=1, spread=1.5)
    assert alarms(detector, rows(5000, seed=2, spread=1.5)) > 0.2
    before = detector.offset_
    detector.recalibrate(wider, sites=np.full(500, "host-9"), per_site=True)
    assert detector.offset_ == before
    assert abs(alarms(detector, rows(5000, seed=2, spread=1.5), "host-9") - 0.05) < 0.025
    assert alarms(detector, rows(5000, seed=2), "another") == pytest.approx(0.05, abs=0.015)
    scores = detector.decision_function(wider, site="host-9")
    np.testing.assert_array_equal(scores < 0, detector.predict(wider, site="host-9") == -1)


def test_some_attacks_among_the_rows_do_not_blind_it(detector):
    mixed = np.concatenate([rows(475, seed=1, spread=1.5), rows(25, seed=3) + 100.0])
    detector.recalibrate(mixed)
    assert 0.008 < alarms(detector, rows(5000, seed=2, spread=1.5)) < 0.09
    assert alarms(detector, rows(50, seed=4) + 100.0) == 1.0


def test_the_common_threshold_moves_by_sums_alone(detector):
    fed = fs.federate(rows(600, seed=1, spread=2.0), sites=np.arange(600) % 3, policy=fs.Policy(secure_sum=True))
    detector.recalibrate(fed)
    assert abs(alarms(detector, rows(5000, seed=2, spread=2.0)) - 0.05) < 0.025
    with pytest.raises(FedspanError, match="single"):
        detector.recalibrate(fed, per_site=True)


@pytest.mark.parametrize("n", [1, 5, 2000])
def test_a_site_with_few_rows_has_nearly_the_common_threshold(detector, n):
    site = np.full(n, "a")
    detector.recalibrate(rows(n, seed=1, spread=3.0), sites=site, per_site=True, contamination=0.0, borrowed=200.0)
    moved = detector.site_offsets_["a"] / detector.offset_
    assert (moved > 3.0) == (n == 2000)
    assert 0.9 < moved < 12.0


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_few_unusual_rows_do_not_move_a_site_far(detector, n):
    detector.recalibrate(1e3 * rows(n, seed=1), sites=np.full(n, "a"), per_site=True)
    assert detector.site_offsets_["a"] / detector.offset_ < 1.1


@pytest.mark.parametrize("n", [100, 200, 500])
def test_a_site_with_some_more_rows_has_its_own_threshold(detector, n):
    detector.recalibrate(rows(n, seed=1, spread=3.0), sites=np.full(n, "a"), per_site=True)
    assert alarms(detector, rows(5000, seed=2, spread=3.0), "a") < 0.13


def test_it_is_saved_and_a_new_fit_forgets_it(detector, tmp_path):
    detector.recalibrate(rows(300, seed=1), sites=np.arange(300) % 2, per_site=True)
    detector.recalibrate(rows(300, seed=1))
    detector.save(tmp_path / "model.fedspan")
    loaded = fs.load(tmp_path / "model.fedspan")
    assert loaded.site_offsets_ == detector.site_offsets_
    assert loaded.anchor_ == detector.anchor_ == -detector.offset_
    assert not hasattr(detector.fit(rows(300)), "site_offsets_")


def test_the_threshold_follows_a_slow_drift(detector):
    shares = []
    for window in range(40):
        X = rows(1000, seed=100 + window, spread=1.0 + 0.005 * window)
        shares.append(detector.follow(X, sites=np.arange(1000) % 4, cap=10.0).alarms)
    assert abs(np.mean(shares[5:]) - 0.05) < 0.015
    assert alarms(detector, rows(4000, seed=1, spread=1.2)) < 0.08


def test_a_poisoned_site_moves_it_by_at_most_the_cap_and_raises_an_alarm(detector):
    """One of ten sites sends ever stranger rows."""
    start = -detector.offset_
    noticed = False
    for window in range(30):
        X = rows(1000, seed=200 + window)
        X[::10] *= 1.0 + 0.2 * window
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = detector.follow(X, sites=np.arange(1000) % 10, cap=0.5)
        noticed |= found.capped
        assert found.capped == bool(caught)
        assert abs(found.threshold - start) <= 0.5 * detector.score_spread_ * (1 + 1e-12)
    assert noticed
    later = detector.follow(rows(1000, seed=1), cap=0.5, new_period=True)
    assert not later.capped
    assert detector.anchor_ == later.before


def test_usual_counts_are_those_of_the_levels():
    levels = np.array([[1.0, 0.2], [2.0, 0.6], [4.0, 1.0]], dtype=np.float32)
    edges = np.array([[0.5, 1.0, 3.0, 9.0]])
    np.testing.assert_allclose(usual_counts(levels, edges, 10.0), [0.0, 2.0, 6.0, 2.0, 0.0], atol=1e-6)


def test_edges_are_dense_at_the_threshold_and_reach_far():
    edges = edges_around(3.0)[0]
    assert edges[512] == 3.0
    assert edges[513] / 3.0 - 1 < 0.0011
    assert edges[-1] > 3e5
    assert (np.diff(edges_around(0.0)[0]) >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contamination": 1.0}, "contamination=1.0 must"),
        ({"borrowed": -1}, "borrowed=-1 must"),
        ({"per_site": "yes"}, "per_site='yes' must"),
    ],
)
def test_what_cannot_work_is_refused(detector, options, message):
    with pytest.raises(InputError, match=message):
        detector.recalibrate(rows(10), **options)
    with pytest.raises(InputError, match="cap=0 must"):
        detector.follow(rows(10), cap=0)
    with pytest.raises(ValueError, match="3 features"):
        detector.recalibrate(rows(10)[:, :3])


@pytest.mark.slow
def test_unseen_hosts_of_ton_get_their_false_alarms_back():
    from fedspan.papers.fedpca.traffic_paper import signed_log
    from tests import real_data

    table = real_data.ton()
    X, normal = signed_log(table.data), np.flatnonzero(table.target == 0)
    host = table.src_ip[normal]
    names, counts = np.unique(host, return_counts=True)
    new = names[counts > 3000]
    train = normal[~np.isin(host, new)]
    detector = fs.FedPCADetector(10).fit(X[train], sites=np.arange(len(train)) % 10)
    rng = np.random.default_rng(0)
    attacks = np.flatnonzero(table.target != 0)
    before, clean, mixed = [], [], []
    for name in new:
        own = rng.permutation(normal[host == name])
        first, rest, site = own[:500], X[own[500:]], np.full(500, str(name))
        before.append(alarms(detector, rest))
        detector.recalibrate(X[first], sites=site, per_site=True)
        clean.append(alarms(detector, rest, str(name)))
        some = np.concatenate([first[:475], rng.choice(attacks, 25)])
        detector.recalibrate(X[some], sites=site, per_site=True)
        mixed.append(alarms(detector, rest, str(name)))
    assert np.mean(before) > 0.25
    assert abs(np.mean(clean) - 0.05) < 0.02
    assert abs(np.mean(mixed) - 0.05) < 0.04
