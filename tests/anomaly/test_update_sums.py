"""What a detector learns from new rows in one call."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.anomaly.export.exported_detector import gateway_arrays
from fedspan.anomaly.parts.isolation_trees import counted_leaves
from fedspan.anomaly.parts.update_sums import local_update_sums, of_parts, update_sums
from fedspan.errors import FedspanError, QuorumError
from fedspan.gateway.kept_sums import KeptSums
from fedspan.gateway.scorer import Scorer

MEMBERS = [("centers", "isolation", "mahalanobis"), ("centers",), ("isolation",), ("isolation", "mahalanobis")]


def rows(n=600, seed=0, d=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ np.random.default_rng(9).normal(size=(d, d)) + 100.0


def federated(X, **more):
    return fs.federate(X, sites=np.arange(len(X)) % 4, **more)


def updated(detector, X, **more):
    fed = federated(X, **more)
    with fed.begin("update") as run:
        return update_sums(run, model=gateway_arrays(detector))


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("secure", [False, True])
def test_the_sums_are_those_that_a_gateway_keeps_of_all_rows(members, secure):
    detector = fs.FedAnomalyDetector(members=members, n_trees=20, random_state=0).fit(federated(rows()))
    X = rows(300, seed=1)
    moments, found = updated(detector, X, policy=fs.Policy(secure_sum=secure))
    scorer = Scorer(gateway_arrays(detector))
    kept = KeptSums.empty(scorer)
    kept.add(X, scorer)
    assert moments.n == 300
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(moments.gram(), 299 * np.cov(X.T), rtol=1e-6)
    for name in set(found) - {"center_sums"}:
        np.testing.assert_array_equal(found[name], kept.sums[name])
    if "center_sums" in found:
        # Moves of the centres, in deviations of the columns: packed sums are rounded to a 254th of the largest move.
        apart = (found["center_sums"] - kept.sums["center_sums"]) / detector.scale_
        assert np.abs(apart).max() < 0.05


def test_rows_are_scored_as_new_ones_by_the_model_that_has_not_learned_them():
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).partial_fit(federated(rows()))
    X = rows(300, seed=1)
    before, edges = detector.sketch_counts_, detector.sketch_edges_
    scores = -detector.score_samples(X)
    detector.partial_fit(federated(X))
    new = np.bincount(np.searchsorted(edges, scores), minlength=len(before))
    np.testing.assert_allclose(detector.sketch_counts_, (before + new) * 600 / 900)


@pytest.mark.parametrize("members", MEMBERS)
def test_leaves_and_moments_of_batches_are_those_of_all_rows(members):
    X = rows(2000)
    detector = fs.FedAnomalyDetector(members=members, n_trees=20, random_state=0)
    for batch in np.array_split(X, 10):
        detector.partial_fit(federated(batch))
    assert detector.n_samples_ == 2000
    if "isolation" in members:
        whole = counted_leaves([X], detector.features_, detector.cuts_)
        np.testing.assert_array_equal(detector.leaf_counts_, whole)
    if "mahalanobis" in members:
        whole = fs.FedPCADetector().fit(X)
        np.testing.assert_allclose(detector.whitening_, whole.whitening_, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("secure", [False, True])
def test_of_many_rows_a_sample_is_scored_and_all_are_counted(secure):
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).partial_fit(federated(rows(4000)))
    X = rows(40_003, seed=1)
    moments, found = updated(detector, X, policy=fs.Policy(secure_sum=secure))
    np.testing.assert_allclose(moments.gram(), 40_002 * np.cov(X.T), rtol=1e-6)
    np.testing.assert_array_equal(found["leaf_counts"], counted_leaves([X], detector.features_, detector.cuts_))
    scorer = Scorer(gateway_arrays(detector))
    kept = KeptSums.empty(scorer)
    kept.add(X, scorer)
    for name in ("counts", "center_counts"):
        assert found[name].sum() == 40_003
    assert (found["member_counts"].sum(axis=1) == 40_003).all()
    assert not np.array_equal(found["counts"], kept.sums["counts"])
    # Some 13,000 rows are scored: a share is off by four times its deviation in one of 16,000 draws.
    for name in ("counts", "member_counts"):
        shares = [np.cumsum(own[name], axis=-1) / len(X) for own in (found, kept.sums)]
        assert np.abs(shares[0] - shares[1]).max() < 4 * 0.5 / np.sqrt(13_000)
    means = [own["center_sums"].sum(axis=0) / len(X) for own in (found, kept.sums)]
    assert np.abs((means[0] - means[1]) / detector.scale_).max() < 4 / np.sqrt(13_000)


def test_the_fewest_rows_behind_a_sum_are_those_of_the_sample():
    site = fs.Site("a", rows(1000))
    assert of_parts(site, most=999, centers=np.ones((100, 5))) == 500 // 100
    assert of_parts(site, most=1000, centers=np.ones((100, 5))) == 1000 // 100


def test_a_site_of_many_rows_counts_by_its_rows_beside_one_of_few():
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).partial_fit(federated(rows(4000)))
    X = np.concatenate([rows(38_000, seed=1), rows(500, seed=2) + 50.0])
    fed = fs.federate(X, sites=np.arange(len(X)) >= 38_000)
    with fed.begin("update") as run:
        _, found = update_sums(run, model=gateway_arrays(detector))
    assert found["counts"].sum() == 38_500
    above = found["counts"][np.searchsorted(detector.sketch_edges_, -detector.offset_) + 1 :].sum()
    assert 500 <= above < 500 + 0.08 * 38_000


def test_centres_of_batches_lose_nothing_by_packed_sums():
    X, new = rows(4000), rows(4000, seed=3)
    found = []
    for secure in (False, True):
        detector = fs.FedAnomalyDetector(members=("centers",), n_centers=40, random_state=0)
        policy = fs.Policy(secure_sum=secure)
        for batch in np.array_split(X, 8):
            detector.partial_fit(federated(batch, policy=policy))
        found.append(np.mean(detector.member_scores(new)))
    assert found[0] == pytest.approx(found[1], rel=2e-3)


def test_an_update_is_one_call_of_few_bytes():
    detector = fs.FedAnomalyDetector(random_state=0).fit(federated(rows(4000, d=20)))
    detector.partial_fit(federated(rows(4000, seed=1, d=20)))
    assert [call.step for call in detector.run_.calls] == ["sums.columns", "anomaly.update_sums"]
    assert max(detector.run_.calls[1].bytes_up.values()) < 22_000


def test_values_that_are_not_finite_are_named_and_change_nothing():
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).fit(federated(rows()))
    before, bad = detector.leaf_counts_, rows(200, seed=1)
    bad[5, 2] = np.nan
    with pytest.raises(ValueError, match="feature number 2 at site '1'"):
        detector.partial_fit(federated(bad))
    assert detector.leaf_counts_ is before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("leaves", np.zeros(3, np.uint8)),
        ("leaves", None),
        ("leaf_counts", np.ones(7, np.uint8)),
        ("leaf_counts", np.ones(4000)),
        ("center_counts", np.full(75, -1)),
        ("center_sums", np.ones((3, 5), np.int8)),
        ("units", np.ones(2, np.float32)),
        ("counts", np.ones(9, np.uint8)),
        ("member_counts", np.full((3, 258), -1)),
        ("scatter", np.ones(3)),
    ],
)
def test_a_reply_that_no_honest_site_sends_costs_the_site_its_place(key, value):
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).fit(federated(rows()))

    def attack(replies, bad, rng, call):
        return {site: {**replies[site], key: value} for site in bad}

    fed = federated(rows(400, seed=1)).corrupt(attack, sites=["2"])
    detector.partial_fit(fed, batch="monday")
    assert detector.counted_batches_["monday"] == ("0", "1", "3")
    assert detector.n_samples_ == 900


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": None},
        {"scale": np.ones(4)},
        {"centers": np.ones((3, 4))},
        {"centers": np.empty((0, 5))},
        {"cuts": None},
        {"depths": np.ones((20, 8))},
        {"features": np.full((20, 8), 5)},
        {"root": np.eye(4)},
        {"edges": np.ones((2, 257))},
        {"high": np.ones(2)},
        {"ranks": np.ones((3, 2))},
        {"most": 1},
    ],
)
def test_a_site_refuses_a_model_that_does_not_fit_its_rows(wrong):
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).fit(federated(rows()))
    arrays = gateway_arrays(detector)
    model = {
        name: arrays.get(name)
        for name in ("mean", "scale", "centers", "features", "cuts", "depths", "root", "components", "inside")
    }
    model |= {name: arrays[name] for name in ("edges", "ranks", "high", "width", "sketch_edges")}
    call = {
        "pack": True,
        "products": True,
        "most": 100,
        "centre": arrays["mean"],
        "usual": 1.0,
        "outside": 1.0,
        **model,
        **wrong,
    }
    with pytest.raises(FedspanError):
        federated(rows(100)).ask(local_update_sums, **call)


def test_rows_of_sites_that_fail_in_the_middle_are_counted_once():
    X, new = rows(), rows(900, seed=1)
    detector = fs.FedAnomalyDetector(n_trees=20, random_state=0).partial_fit(federated(X), batch="monday")
    fed = federated(new)
    for seed in range(60):
        with suppress(QuorumError):
            detector.partial_fit(fed.with_faults(fs.FaultPlan(seed=seed, drop=0.2)), batch="tuesday")
        if len(detector.counted_batches_.get("tuesday", ())) == 4:
            break
    whole = counted_leaves([X, new], detector.features_, detector.cuts_)
    np.testing.assert_array_equal(detector.leaf_counts_, whole)
    assert detector.center_sizes_.sum() == 1500


def test_in_one_call_or_two_a_pipeline_keeps_its_units():
    X = rows(1200)
    model = make_pipeline(fs.FedStandardScaler(), fs.FedAnomalyDetector(n_trees=20, random_state=0))
    for batch in np.array_split(X, 4):
        fs.partial_fit(model, federated(batch))
    whole = fs.FedPCADetector().fit(fs.FedStandardScaler().fit_transform(X))
    np.testing.assert_allclose(model[-1].whitening_, whole.whitening_, rtol=1e-8, atol=1e-9)
    assert abs(np.mean(model.predict(rows(3000, seed=5)) == -1) - 0.05) < 0.03
