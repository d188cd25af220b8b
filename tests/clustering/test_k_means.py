"""FedKMeans: labels, new rows, single replies, and settings that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from tests.clustering.cluster_examples import blobs


def test_labels_stay_at_the_sites_of_a_federation_unless_they_are_posted():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 3)
    model = fs.FedKMeans(4, random_state=0).fit(fed)
    assert not hasattr(model, "labels_")
    with pytest.raises(AttributeError, match=r"stay at its sites; fit with post_labels=True"):
        _ = model.labels_
    steps = {call.step for call in model.run_.calls[1:]}  # the first is that of the columns
    assert steps == {"sums.moments", "clustering.cluster_counts", "clustering.cluster_means"}
    posting = fs.FedKMeans(4, random_state=0, post_labels=True).fit(fed)
    np.testing.assert_array_equal(posting.labels_at("1"), model.predict(X[1::3]))
    refitted = posting.set_params(post_labels=False).fit(fed)
    assert not hasattr(refitted, "labels_")


def test_under_secure_sums():
    X, _ = blobs(150)
    labels = np.arange(150) % 5
    policy = fs.Policy(secure_sum=True)
    plain = fs.FedKMeans(5, random_state=0).fit(X, sites=labels)
    secure = fs.FedKMeans(5, random_state=0).fit(fs.federate(X, sites=labels, policy=policy))
    np.testing.assert_allclose(secure.cluster_centers_, plain.cluster_centers_, atol=1e-9)
    with pytest.raises(PolicyError, match=r"FedKMeans\(post_labels=True\) needs the replies of single sites"):
        fs.FedKMeans(5, post_labels=True).fit(fs.federate(X, sites=labels, policy=policy))


def test_transform_of_a_federation_is_at_its_sites():
    X, _ = blobs(60)
    model = fs.FedKMeans(3, random_state=0).fit(X)
    seen = model.transform(fs.federate(X, sites=np.arange(60) % 2, wire=True))
    np.testing.assert_allclose(fs.FedStandardScaler().fit(seen).mean_, model.transform(X).mean(axis=0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 41}, r"n_clusters=41 must be a whole number between 1 and 40, the number of rows"),
        ({"least_rows": 41}, "n_samples=40 is fewer than least_rows=41"),
        ({"init": "random"}, "init='random' must be 'split' or an array"),
        ({"n_clusters": 2, "init": np.zeros((3, 4))}, r"init has the shape \(3, 4\)"),
        ({"n_clusters": 2, "init": np.zeros((2, 3))}, "init has 3 columns, and the rows have 4"),
        ({"n_clusters": 2, "init": np.zeros((2, 4)), "n_init": 3}, "n_init=3 must be 1 with a given start"),
        ({"tol": -1}, "tol=-1"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"post_labels": "no"}, "post_labels='no' must be True or False"),
    ],
)
def test_settings_that_cannot_work_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        fs.FedKMeans(**{"n_clusters": 3, **parameters}).fit(blobs(40)[0])


def test_rows_that_are_all_the_same():
    with pytest.warns(ConvergenceWarning, match="2 of the 3 clusters have no rows"):
        model = fs.FedKMeans(3, random_state=0).fit(np.ones((20, 2)))
    np.testing.assert_array_equal(model.cluster_centers_, np.ones((3, 2)))
    np.testing.assert_array_equal(model.cluster_sizes_, [20, 0, 0])
    assert model.inertia_ == 0.0


@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)], ids=["plain", "secure"])
def test_whole_weights_are_repeated_rows(policy):
    X = np.random.default_rng(0).normal(size=(120, 3)) + 6 * (np.arange(120) % 3)[:, None]
    labels, weights = np.arange(120) % 4, np.random.default_rng(1).integers(0, 4, 120)
    again = np.repeat(np.arange(120), weights)
    for options in ({}, {"init": X[:3]}):
        repeated = fs.FedKMeans(3, random_state=0, **options).fit(
            fs.federate(X[again], sites=labels[again], policy=policy)
        )
        weighted = fs.FedKMeans(3, random_state=0, **options).fit(
            fs.federate(X, sites=labels, sample_weight=weights, policy=policy)
        )
        np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
        np.testing.assert_allclose(weighted.cluster_sizes_, repeated.cluster_sizes_, rtol=1e-12)
        np.testing.assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-9)


def test_weights_are_those_of_scikit_learn():
    X = np.random.default_rng(0).normal(size=(200, 3)) + 6 * (np.arange(200) % 3)[:, None]
    weights = np.random.default_rng(1).exponential(size=200) / 1000
    ours = fs.FedKMeans(3, init=X[:3], tol=0.0).fit(X, sites=np.arange(200) % 5, sample_weight=weights)
    theirs = KMeans(3, init=X[:3], n_init=1, tol=0.0).fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)
    np.testing.assert_allclose(ours.inertia_, theirs.inertia_, rtol=1e-9)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.score(X, sample_weight=weights) == pytest.approx(theirs.score(X, sample_weight=weights))
    split = fs.FedKMeans(3, random_state=0).fit(X, sites=np.arange(200) % 5, sample_weight=weights)
    assert split.inertia_ == pytest.approx(theirs.inertia_, rel=1e-3)


def test_a_site_without_weights_counts_each_row_once_beside_one_with_them():
    X = np.random.default_rng(0).normal(size=(60, 2)) + 6 * (np.arange(60) % 2)[:, None]
    sites = [fs.Site("a", X[:30], sample_weight=np.full(30, 2.0)), fs.Site("b", X[30:])]
    found = fs.FedKMeans(2, init=X[:2]).fit(fs.LocalFederation(sites))
    theirs = KMeans(2, init=X[:2], n_init=1).fit(X, sample_weight=np.r_[np.full(30, 2.0), np.ones(30)])
    np.testing.assert_allclose(found.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)
    with pytest.raises(fs.errors.InputError, match=r"FedKMeans\(least_rows=5\) takes no account of sample_weight"):
        fs.FedKMeans(2, least_rows=5).fit(fs.LocalFederation(sites))


@pytest.mark.parametrize("size", [1e-24, 1e24])
def test_distances_in_single_precision_whose_squares_do_not_fit_it(size):
    X = np.random.default_rng(0).normal(size=(60, 3))
    whole = fs.FedKMeans(3, random_state=0).fit(X, sites=np.arange(60) % 3)
    scaled = fs.FedKMeans(3, init=size * whole.cluster_centers_).fit(size * X, sites=np.arange(60) % 3)
    found = scaled.transform((size * X).astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found / size, whole.transform(X), rtol=1e-5, atol=1e-5)
