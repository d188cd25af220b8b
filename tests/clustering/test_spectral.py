"""FedSpectralClustering: clusters of known groups, both affinities, new rows and the order of rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan.clustering.spectral import graph_eigenvectors
from fedspan.errors import InputError

QUICK = {"n_clusters": 3, "n_landmarks": 30, "rounds": 20, "random_state": 0}
AFFINITIES = ("neighbors", "kernel")
each_affinity = pytest.mark.parametrize("affinity", AFFINITIES)


def groups(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 6)) + 7 * np.eye(3, 6)[y], y


def rings(n=300):
    rng = np.random.default_rng(0)
    y, angle = np.arange(n) % 2, rng.uniform(0, 2 * np.pi, n)
    return (1 + 3 * y + 0.1 * rng.normal(size=n))[:, None] * np.c_[np.cos(angle), np.sin(angle)], y


@each_affinity
def test_groups_are_found_whatever_the_split(affinity):
    X, y = groups()
    model = fs.FedSpectralClustering(**QUICK, affinity=affinity)
    by_class = model.fit(X, sites=y).labels_
    assert adjusted_rand_score(by_class, y) > 0.97
    assert adjusted_rand_score(model.fit_predict(X), by_class) == 1.0
    assert model.eigenvalues_[0] == pytest.approx(1.0)
    assert (np.diff(model.eigenvalues_) <= 1e-12).all()


def test_neighbours_find_shapes():
    X, y = rings()
    settings = {**QUICK, "n_clusters": 2}
    assert adjusted_rand_score(fs.FedSpectralClustering(**settings).fit(X).labels_, y) == 1.0
    sharp = fs.FedSpectralClustering(**{**settings, "n_landmarks": 100}, affinity="kernel", gamma=30.0).fit(X)
    assert adjusted_rand_score(sharp.labels_, y) > 0.9
    assert adjusted_rand_score(sharp.set_params(gamma=1.0).fit(X).labels_, y) < 0.5


@each_affinity
def test_order_of_rows_and_new_ones(affinity, tmp_path):
    X, _ = groups()
    sites = np.array(["b", "a"])[np.arange(150) % 2]
    model = fs.FedSpectralClustering(**QUICK, affinity=affinity).fit(X, sites=sites)
    by_site = fs.FedSpectralClustering(**QUICK, affinity=affinity).fit(fs.federate(X, sites=sites))
    np.testing.assert_array_equal(by_site.labels_, np.r_[model.labels_[1::2], model.labels_[::2]])
    np.testing.assert_array_equal(model.labels_at("a"), model.labels_[1::2])
    assert (model.predict(X) == model.labels_).mean() > 0.98
    new, labels = groups(60, seed=3)
    model.save(tmp_path / "clusters")
    assert adjusted_rand_score(fs.load(tmp_path / "clusters").predict(new), labels) > 0.9


@each_affinity
def test_a_site_that_does_not_post_has_no_labels(affinity):
    X, _ = groups()

    def offline(replies, bad, rng, call):
        return {site: ({} if call.number > 8 else replies[site]) for site in bad}

    fed = fs.federate(X, sites=np.arange(150) % 5).corrupt(offline, ["4"])
    with pytest.warns(UserWarning, match="not on the map"):
        model = fs.FedSpectralClustering(**QUICK, affinity=affinity).fit(fed)
    assert len(model.labels_) == 120
    assert len(model.labels_at("4")) == 0


def test_a_second_fit_leaves_nothing_of_the_first(tmp_path):
    X, _ = groups()
    model = fs.FedSpectralClustering(**QUICK).fit(X)
    model.set_params(affinity="kernel").fit(X)
    assert not hasattr(model, "factor_")
    model.set_params(affinity="neighbors").fit(X)
    assert not hasattr(model, "axes_")
    assert not hasattr(model, "spectral_embedding_")


def test_eigenvectors_of_large_and_small_graphs_agree():
    X, _ = groups(200)
    D = np.linalg.norm(X[:, None] - X, axis=2) + 1e9 * np.eye(200)
    indices = np.argsort(D, axis=1)[:, :10].astype(np.int32)
    values, vectors = graph_eigenvectors(indices, 4, np.random.default_rng(0))
    A = np.zeros((200, 200))
    A[np.arange(200)[:, None], indices] = 0.5
    A = A + A.T
    root = A.sum(axis=1) ** -0.5
    dense = np.linalg.eigvalsh(root[:, None] * A * root)[::-1][:4]
    np.testing.assert_allclose(values, dense, atol=1e-9)
    np.testing.assert_allclose(root[:, None] * A * root @ vectors, vectors * values, atol=1e-8)


def test_settings_that_cannot_work_are_refused():
    X, _ = groups(30)
    for settings, message in [
        ({"affinity": "rbf"}, "affinity='rbf' must be one of 'neighbors', 'kernel'"),
        ({"n_clusters": 31}, "n_clusters=31 must be a whole number between 1 and 30"),
        ({"gamma": 0}, "gamma=0"),
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"share": "rows"}, "share='rows'"),
        ({"method": "x"}, "method='x'"),
        ({"neighbors": "x"}, "neighbors='x'"),
    ]:
        with pytest.raises(InputError, match=message):
            fs.FedSpectralClustering(**{**QUICK, **settings}).fit(X)


@pytest.mark.parametrize(
    ("affinity", "name", "value"),
    [
        ("kernel", "n_neighbors", 3),
        ("kernel", "method", "paper"),
        ("kernel", "neighbors", "exact"),
        ("neighbors", "gamma", 2.0),
    ],
)
def test_settings_of_the_other_affinity_are_refused(affinity, name, value):
    X, _ = groups(30)
    with pytest.raises(InputError, match=f"{name}={value!r} has no effect with affinity='{affinity}'"):
        fs.FedSpectralClustering(**QUICK, affinity=affinity, **{name: value}).fit(X)


def test_a_graph_in_more_parts_than_clusters_is_reported():
    X = np.random.default_rng(0).normal(size=(90, 2)) + 100.0 * (np.arange(90) % 3)[:, None]
    settings = {"affinity": "neighbors", "n_landmarks": 20, "rounds": 5, "n_neighbors": 5, "random_state": 0}
    with pytest.warns(UserWarning, match="3 parts without any neighbours in common, more than n_clusters=2"):
        fs.FedSpectralClustering(2, **settings).fit(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the neighbour graph")
        fs.FedSpectralClustering(3, **settings).fit(X)
