"""Federated k-means: pooled Lloyd for any split, the start from sums, and sites that leave or attack."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian, Mean
from fedspan.clustering import federated_k_means as protocol
from fedspan.errors import FedspanError
from tests.clustering.cluster_examples import blobs


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), sites=st.integers(1, 9), shift=st.sampled_from([0.0, 1e4]))
def test_any_split_is_the_pooled_lloyd_of_scikit_learn(seed, sites, shift):
    rng = np.random.default_rng(seed)
    X = blobs(120, seed=seed, apart=2.0)[0] + shift
    init = X[rng.choice(120, 5, replace=False)]
    pooled = KMeans(5, init=init, n_init=1, algorithm="lloyd").fit(X)
    found = fs.FedKMeans(5, init=init).fit(X, sites=rng.integers(0, sites, 120))
    np.testing.assert_allclose(found.cluster_centers_, pooled.cluster_centers_, atol=1e-9 * max(1.0, shift))
    np.testing.assert_array_equal(found.labels_, pooled.labels_)
    assert found.inertia_ == pytest.approx(pooled.inertia_, rel=1e-9)
    assert found.n_iter_ == pooled.n_iter_
    np.testing.assert_allclose(found.transform(X), pooled.transform(X), atol=1e-6)
    assert found.score(X) == pytest.approx(pooled.score(X), rel=1e-9)


def test_one_round_by_hand():
    X = np.array([[0.0], [2.0], [10.0], [12.0], [14.0]])
    model = fs.FedKMeans(2, init=[[1.0], [4.0]], max_iter=1, least_rows=1).fit(X, sites=list("abaab"))
    np.testing.assert_allclose(model.cluster_centers_, [[1.0], [12.0]])
    assert model.inertia_ == pytest.approx(1 + 1 + 4 + 0 + 4)
    np.testing.assert_array_equal(model.cluster_sizes_, [2, 3])
    np.testing.assert_array_equal(model.labels_, [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(model.row_sites_, [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(model.labels_at("b"), [0, 1])


def test_a_mean_of_moves_is_the_sum_and_a_median_resists_malicious_sites():
    X, y = blobs(k=3)
    sites = np.arange(len(X)) % 10
    start = np.array([X[y == k][0] for k in range(3)])
    settings = {"n_clusters": 3, "init": start, "max_iter": 4}
    plain = protocol.federated_k_means(fs.federate(X, sites=sites), **settings).best()
    mean = protocol.federated_k_means(fs.federate(X, sites=sites), **settings, aggregator=Mean()).best()
    np.testing.assert_allclose(mean.centres, plain.centres, rtol=1e-9)
    np.testing.assert_allclose(mean.counts, plain.counts)
    assert mean.inertia == pytest.approx(plain.inertia)
    # With three malicious sites of ten, the centres are nearer than those of a typical site on its own.
    own = [X[(y == k) & (sites == site)].mean(axis=0) - plain.centres[k] for k in range(3) for site in range(10)]
    for seed in range(5):
        fed = fs.federate(X, sites=sites, seed=seed)
        bad = fed.corrupt(attacks.RandomNoise(1e6), sites=fed.sites[:3])
        voted = protocol.federated_k_means(bad, **settings, aggregator=CoordinateMedian()).best()
        assert np.abs(voted.centres - plain.centres).max() < np.median([np.abs(error).max() for error in own])


@pytest.mark.parametrize("seed", range(3))
def test_huge_sums_of_malicious_sites_do_not_end_a_run_by_medians(seed):
    """A centre that only malicious sites have rows at had a share of 1e-298, and moved by the inverse of that."""
    rng = np.random.default_rng(seed)
    X = 8.0 * rng.standard_normal((4, 5))[rng.integers(4, size=1140)] + rng.standard_normal((1140, 5))
    fed = fs.federate(X, sites=np.arange(1140) % 19, seed=1)
    bad = fed.corrupt(attacks.Ones(1e300), sites=fed.sites[:5])
    found = bad.run(protocol.federated_k_means, n_clusters=4, n_init=5, aggregator=GeometricMedian()).best()
    assert np.abs(found.centres).max() < 1e3 * np.abs(X).max()


@pytest.mark.parametrize("bad", [8, 9])
def test_nearly_half_of_the_sites_do_not_carry_one_median_of_all_centres_away(bad):
    """Round by round they did: by 1e15 with nine of 19, and no warning showed it."""
    rng = np.random.default_rng(4)
    truth = 8.0 * rng.standard_normal((4, 5))
    X = truth[rng.integers(4, size=1140)] + rng.standard_normal((1140, 5))
    fed = fs.federate(X, sites=np.arange(1140) % 19, seed=1)
    for attack in (attacks.ScaledReverse(10.0), attacks.Ones(0.0), attacks.Ones(1e300)):
        seen = fed.corrupt(attack, sites=fed.sites[1 : 2 * bad : 2])
        found = seen.run(protocol.federated_k_means, n_clusters=4, n_init=5, aggregator=GeometricMedian()).best()
        assert np.linalg.norm(found.centres[:, None] - truth, axis=2).min(axis=0).max() < 4.0  # they are 18 apart


def test_the_start_from_sums_is_as_good_as_k_means_plus_plus_and_the_same_for_any_split():
    X, y = blobs(600, k=12, d=8)
    one = fs.FedKMeans(12, random_state=0, n_init=3).fit(X)
    many = fs.FedKMeans(12, random_state=0, n_init=3).fit(X, sites=np.arange(600) % 7)
    np.testing.assert_allclose(many.cluster_centers_, one.cluster_centers_, atol=1e-9)
    assert adjusted_rand_score(y, one.labels_) > 0.9
    assert one.inertia_ < 1.1 * KMeans(12, n_init=3, random_state=0).fit(X).inertia_


def test_more_starts_keep_the_best_of_them():
    X, _ = blobs(400, k=15, d=2, apart=4.0)
    runs = fs.federate(X, sites=np.arange(400) % 3, seed=1).run(
        protocol.federated_k_means, n_clusters=15, n_init=5, max_iter=50
    )
    model = fs.FedKMeans(15, n_init=5, max_iter=50).fit(fs.federate(X, sites=np.arange(400) % 3, seed=1))
    assert np.ptp(runs.inertia) > 0
    assert model.inertia_ == runs.inertia.min()
    np.testing.assert_array_equal(model.cluster_centers_, runs.centres[runs.inertia.argmin()])


def lloyd(X, C, rounds):
    """Pooled Lloyd; of centres that are equally far, to rounding, the first has the row."""
    for _ in range(rounds):
        D = np.square(X[:, None] - C).sum(axis=2)
        labels = (D.min(axis=1, keepdims=True) + 1e-9 >= D).argmax(axis=1)
        C = np.array([X[labels == j].mean(axis=0) if (labels == j).any() else C[j] for j in range(len(C))])
    return C


@pytest.mark.parametrize("table", ["iris", "digits 0-4", "tenths"])
def test_ties_fall_alike_for_any_split_and_as_in_pooled_lloyd(table):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = {
            "iris": load_iris().data,
            "digits 0-4": rng.integers(0, 5, (150, 2)).astype(float),
            "tenths": rng.integers(0, 9, (150, 3)) / 10 + 1e3,
        }[table]
        k = int(rng.integers(3, 20))
        distinct = np.unique(X, axis=0)  # of two equal centres one would have no rows
        init = distinct[rng.choice(len(distinct), k, replace=False)]
        expected = lloyd(X - X.mean(axis=0).round(), init - X.mean(axis=0).round(), 25) + X.mean(axis=0).round()
        for sites in (np.zeros(150, int), np.arange(150) % 3, np.arange(150) % 10, rng.integers(0, 7, 150)):
            found = fs.FedKMeans(k, init=init, max_iter=25, tol=0.0).fit(X, sites=sites)
            np.testing.assert_allclose(found.cluster_centers_, expected, atol=1e-9)


def test_a_site_that_drops_out_is_not_in_the_centres():
    X, _ = blobs(200, k=4, apart=20.0)
    labels = np.arange(200) % 5
    fed = fs.federate(X, sites=labels, seed=1)

    def offline(replies, bad, rng, call):
        return {site: ({} if call.number > 4 else replies[site]) for site in bad}

    with pytest.warns(UserWarning, match="no labels of the rows of these sites, which did not post them: 3"):
        model = fs.FedKMeans(4, post_labels=True).fit(fed.corrupt(offline, ["3"]))
    rest = X[labels != 3]
    again = KMeans(4, init=model.cluster_centers_, n_init=1, max_iter=1).fit(rest)
    np.testing.assert_allclose(model.cluster_centers_, again.cluster_centers_, atol=1e-9)
    assert len(model.labels_) == 160


def test_absurd_sums_are_refused():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 4).corrupt(fs.attacks.RandomNoise(1e200), ["2"])
    with pytest.raises(FedspanError, match=r"numbers beyond|non-finite|overflow"):
        fs.FedKMeans(3).fit(fed)


@pytest.mark.parametrize("rule", [CoordinateMedian(), GeometricMedian()])
def test_votes_that_form_two_groups_are_reported(rule):
    """With eight malicious sites of 19 the centres were up to three times as far as a single site's, in silence."""
    X, _ = blobs(19 * 60, k=4, d=5, apart=8.0)
    fed = fs.federate(X, sites=np.arange(len(X)) % 19, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for some in (fed, fed.corrupt(attacks.SignFlip(), sites=fed.sites[:2])):
            some.run(protocol.federated_k_means, n_clusters=4, aggregator=rule)
    for attack in (attacks.SignFlip(), attacks.Ones(0.0), attacks.Ones(1e300)):
        with pytest.warns(UserWarning, match="two groups, and 8 of 19"):
            fed.corrupt(attack, sites=fed.sites[:8]).run(protocol.federated_k_means, n_clusters=4, aggregator=rule)


def test_centres_without_rows_are_placed_again_alike_for_any_split():
    X, _ = blobs(300, k=5, d=2, apart=30.0)
    far = np.array([[0.0, 0.0], [10.0, 0.0], [1e3, 1e3], [-1e3, 5e3], [3e3, 0.0]])
    one = fs.FedKMeans(5, init=far, random_state=0).fit(X)
    many = fs.FedKMeans(5, init=far, random_state=0).fit(X, sites=np.arange(300) % 7)
    assert one.cluster_sizes_.min() > 0
    assert one.inertia_ < 1.5 * KMeans(5, init=far, n_init=1).fit(X).inertia_
    np.testing.assert_allclose(many.cluster_centers_, one.cluster_centers_, atol=1e-9)


def test_fewer_distinct_rows_than_clusters_are_reported():
    X = np.repeat(np.eye(3), 20, axis=0)
    with pytest.warns(ConvergenceWarning, match="2 of the 5 clusters have no rows"):
        model = fs.FedKMeans(5, random_state=0).fit(X, sites=np.arange(60) % 4)
    assert model.inertia_ == pytest.approx(0.0, abs=1e-20)
    assert sorted(model.cluster_sizes_) == [0, 0, 20, 20, 20]


@pytest.mark.parametrize("unit", [2.0**-200, 2.0**-400, 2.0**400])
def test_units_do_not_matter(unit):
    X, _ = blobs(200, k=4, d=3)
    one = fs.FedKMeans(6, random_state=0).fit(X, sites=np.arange(200) % 3)
    for sites in (np.zeros(200), np.arange(200) % 3):
        other = fs.FedKMeans(6, random_state=0).fit(unit * X, sites=sites)
        np.testing.assert_allclose(other.cluster_centers_ / unit, one.cluster_centers_, atol=1e-9)
        np.testing.assert_array_equal(other.labels_, one.labels_)
        assert other.inertia_ / unit / unit == pytest.approx(one.inertia_)


def test_float32_stays_float32():
    X = blobs(100, k=3)[0].astype(np.float32)
    model = fs.FedKMeans(3, random_state=0).fit(X, sites=np.arange(100) % 4)
    assert model.cluster_centers_.dtype == model.transform(X).dtype == np.float32
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    posted = fs.FedKMeans(3, random_state=0, post_labels=True).fit(X, sites=np.arange(100) % 4)
    np.testing.assert_array_equal(posted.labels_, model.labels_)
    assert fs.FedKMeans(3).fit(X.astype(np.float64)).cluster_centers_.dtype == np.float64


def test_known_moments_and_one_pass_save_calls_and_cost_little(monkeypatch):
    monkeypatch.setattr(protocol, "_SAMPLED", 4000)
    X = np.random.default_rng(0).normal(size=(9001, 3))

    def run(X, **more):
        fed = fs.federate(X, sites=np.arange(len(X)) % 4, seed=0)
        with fed.begin("k-means") as running:
            found = protocol.federated_k_means(running, n_clusters=8, **more)
            return found, len(running.record.calls)

    exact, calls = run(X)
    known, fewer = run(X, known=exact.moments)
    np.testing.assert_array_equal(known.centres, exact.centres)
    assert fewer == calls - 1
    rough, _ = run(X, one_pass=True)
    assert rough.counts.sum() == pytest.approx(9001, abs=1e-9)
    assert np.linalg.norm(X[:, None] - rough.best().centres, axis=2).min(axis=1).mean() == pytest.approx(
        np.linalg.norm(X[:, None] - exact.best().centres, axis=2).min(axis=1).mean(), rel=0.01
    )
    assert rough.inertia == pytest.approx(exact.inertia, rel=0.03)
    small, _ = run(X[:7000], one_pass=True)  # not many rows: they are all read
    np.testing.assert_array_equal(small.centres, run(X[:7000])[0].centres)
