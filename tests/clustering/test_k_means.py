"""FedKMeans: labels, new rows, single replies, and settings that are refused."""

from __future__ import annotations

import numpy as np
import pytest
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
