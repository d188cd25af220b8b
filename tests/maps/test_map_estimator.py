"""FedTSNE and FedUMAP from posted distances: order of rows, new rows, options, absent sites, and the record."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import fedspan as fs
from fedspan.errors import InputError, MessageError, MissingPackageError, QuorumError
from fedspan.linalg.kernels.landmark_form import landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from tests.maps.blob_maps import accuracy, blobs

QUICK = {"n_landmarks": 30, "rounds": 10, "random_state": 0}


MAPS = {
    "FedTSNE": {"early_exaggeration_iter": 50, "n_iter": 50, "perplexity": 10.0},
    "FedUMAP": {"n_epochs": 50},
}


every_map = pytest.mark.parametrize("name", MAPS)


def make(name, **more):
    return getattr(fs, name)(**{**QUICK, **MAPS[name], **more})


@pytest.fixture(scope="module", params=MAPS)
def fitted(request):
    X, y = blobs()
    sites = np.array(["c", "a", "b"])[np.arange(150) % 3]
    return make(request.param).fit(X, sites=sites), X, y, sites


def test_clusters_stay_apart_on_the_map(fitted):
    model, _, y, _ = fitted
    assert model.embedding_.shape == (150, 2)
    assert np.isfinite(model.embedding_).all()
    assert accuracy(model.embedding_, y) > 0.97


def test_rows_are_in_the_order_of_the_table_or_of_the_sites(fitted):
    model, X, _, sites = fitted
    assert model.sites_ == ("a", "b", "c")
    np.testing.assert_array_equal(np.array(model.sites_)[model.row_sites_], sites)
    by_site = make(type(model).__name__).fit(fs.federate(X, sites=sites))
    for name in model.sites_:
        np.testing.assert_array_equal(model.embedding_at(name), model.embedding_[sites == name])
        np.testing.assert_array_equal(by_site.embedding_at(name), model.embedding_at(name))
    np.testing.assert_array_equal(by_site.embedding_, np.concatenate([model.embedding_at(s) for s in "abc"]))
    with pytest.raises(InputError, match="site='d' must be one of 'a', 'b', 'c'"):
        model.embedding_at("d")


def test_new_rows_land_among_their_like(fitted):
    model, X, y, _ = fitted
    new, labels = blobs(60, seed=5)
    found = model.transform(new)
    classifier = KNeighborsClassifier(5).fit(model.embedding_, y)
    assert (classifier.predict(found) == labels).mean() > 0.95
    again = model.transform(X)
    spread = model.embedding_.std()
    assert np.median(np.linalg.norm(again - model.embedding_, axis=1)) < 0.2 * spread
    assert model.transform(new.astype(np.float32)).dtype == np.float32


def test_new_rows_at_sites_are_placed_as_at_the_coordinator(fitted, tmp_path):
    model, _, _, _ = fitted
    new, _ = blobs(20, seed=5)
    model.save(tmp_path / "map")
    loaded = fs.load(tmp_path / "map")
    placed = loaded.transform(fs.federate(new, sites=np.arange(20) % 2, wire=True))
    replies = placed.ask(own_rows)
    np.testing.assert_allclose(replies["1"]["X"], model.transform(new[1::2]), rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fs.FedStandardScaler().fit(model.transform(new)).mean_
    np.testing.assert_allclose(fs.FedStandardScaler().fit(placed).mean_, expected, rtol=1e-3, atol=1e-3)


@fs.step
def own_rows(site):
    return {"X": site.X}


@pytest.mark.parametrize("far", [1e10, 1e19, 1e200, 1e307])
def test_rows_that_are_very_far_out_are_placed_all_the_same(fitted, far):
    model, X, _, _ = fitted
    found = model.transform(far * np.stack([X[0], -X[0]]))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, model.transform(1e4 * np.stack([X[0], -X[0]])), atol=0.1 * model.embedding_.std())
    if far < 1e300:
        apart = fs.FedLandmarks(5, rounds=1, random_state=0).fit(X).transform(far * X[:1])
        np.testing.assert_allclose(apart, far * np.linalg.norm(X[0]), rtol=1e-3)


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_another_width_are_placed_nowhere(fitted, columns):
    model, X, _, _ = fitted
    narrow = fs.federate(X[:6, :columns], sites=np.arange(6) % 2)
    landmarks = fs.FedLandmarks(5, rounds=1).fit(X)
    for transformer in (model, landmarks, fs.FedStandardScaler().fit(X)):
        with pytest.raises(QuorumError, match=f"{columns} columns were passed to a transform that was fitted on 6"):
            transformer.transform(narrow).ask(own_rows)


def test_fit_transform_is_the_layout(fitted):
    model, X, _, sites = fitted
    np.testing.assert_array_equal(make(type(model).__name__).fit_transform(X, sites=sites), model.embedding_)
    assert list(model.get_feature_names_out()) == [f"{type(model).__name__.lower()}{i}" for i in range(2)]


@every_map
def test_the_unit_of_the_data_does_not_matter(name):
    X, _ = blobs(60)
    sites = np.arange(60) % 3
    model = make(name, rounds=2).fit(X, sites=sites)
    for unit in (2.0**-330, 2.0**-126, 2.0**63, 2.0**330):  # exact in binary, so that the maps are the same
        other = make(name, rounds=2).fit(X * unit, sites=sites)
        np.testing.assert_array_equal(other.embedding_, model.embedding_)
        assert other.run_.metric("preserved") == model.run_.metric("preserved")
    options = {"FedTSNE": {"early_exaggeration_iter": 2, "n_iter": 2}, "FedUMAP": {"n_epochs": 2}}[name]
    expected = make(name, rounds=2, **options).fit(X, sites=sites).embedding_
    for unit in (1e-100, 1e-50, 1e-38, 1e15, 1e19, 1e45, 1e100):
        found = make(name, rounds=2, **options).fit(X * unit, sites=sites)
        np.testing.assert_allclose(found.embedding_, expected, atol=1e-4 * np.abs(expected).max())
    new, _ = blobs(5, seed=3)
    assert np.isfinite(found.transform(new * 1e100)).all()


@every_map
def test_one_absurd_distance_excludes_its_site_only(name):
    def corrupted(replies, bad, rng, call):
        def changed(reply):
            if "distances" not in reply:
                return reply
            D = reply["distances"].copy()
            D[0] = 1e19
            return {**reply, "distances": D}

        return {site: changed(replies[site]) for site in bad}

    X, _ = blobs(60)
    with pytest.warns(UserWarning, match=r"not on the map.*: 1 \(.*times the rows' spread"):
        model = make(name, rounds=1).fit(fs.federate(X, sites=np.arange(60) % 3).corrupt(corrupted, ["1"]))
    assert [len(model.embedding_at(site)) for site in model.sites_] == [20, 0, 20]
    assert np.isfinite(model.embedding_).all()


def test_positions_that_are_not_finite_are_refused(monkeypatch):
    X, _ = blobs(20)
    monkeypatch.setattr(fs.FedUMAP, "_layout", lambda self, fed, indices, distances, start: start * np.nan)
    with pytest.raises(InputError, match="positions that are not finite"):
        make("FedUMAP", rounds=1).fit(X)


def test_the_record_has_phases_and_recall(fitted):
    model, *_ = fitted
    record = model.run_
    assert record.metric("phase") == ["landmarks", "distances", "neighbours", "layout"]
    assert record.metric("search") == ["exact"]
    assert record.metric("search_recall") == [1.0]
    assert len(record.metric("mmd2")) == 11
    assert record.stopped == "landmarks, neighbours and layout of 150 rows done"
    assert record.calls[-2].step == "landmarks.distances"
    assert record.calls[-1].step == "landmarks.neighbor_hits"
    assert record.metric("site_recall")[0] > 0.99
    if type(model).__name__ == "FedTSNE":
        assert record.metric("kl_divergence")[-1] == pytest.approx(model.kl_divergence_, rel=0.3)


def far_apart(far, n=600):
    """Return two groups whose distance is many times their extent."""
    X = np.random.default_rng(0).normal(size=(n, 10))
    X[::2] += far
    return X


def ten_nearest(X):
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    return np.argsort(D, axis=1)[:, :10]


@pytest.mark.parametrize("method", ["coordinates", "squared"])
@pytest.mark.parametrize(("far", "double"), [(3, False), (1e4, True)])
def test_neighbours_in_groups_that_are_far_apart_are_found(method, far, double, tmp_path):
    X = far_apart(far)
    model = make("FedTSNE", n_landmarks=50, method=method, n_iter=5).fit(X, sites=np.arange(600) % 3)
    assert model.run_.metric("posted") == ["double"] * double
    assert model.factor_.dtype == model.offset_.dtype == (np.float64 if double else np.float32)
    form = landmark_form((model.landmarks_ - model.centre_) / model.scale_, method, model.residuals_)
    rows = form.form_of(model.factor_, model.offset_)
    hits = [len(np.intersect1d(a, b)) for a, b in zip(nearest(rows, 10)[0], ten_nearest(X), strict=True)]
    assert np.mean(hits) > 9.9
    assert model.run_.metric("site_recall")[0] > 0.99
    model.save(tmp_path / "map")
    new = X[:20] + 1e-6
    np.testing.assert_allclose(fs.load(tmp_path / "map").transform(new), model.transform(new), atol=1e-6)


def test_lost_neighbours_are_reported_from_the_sites_counts():
    with pytest.warns(UserWarning, match=r"hardly separate them: \d+ % of ten neighbours"):
        model = make("FedTSNE", n_iter=5).fit(far_apart(1e9), sites=np.arange(600) % 3)
    assert model.run_.metric("search_recall") == [1.0]
    assert model.run_.metric("site_recall")[0] < 0.5


def test_rows_that_are_the_same_are_no_loss():
    X = np.repeat(blobs(25)[0], 12, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make("FedTSNE", n_iter=5).fit(X, sites=np.arange(300) % 3)
    assert model.run_.metric("site_recall") == [1.0]


@every_map
@pytest.mark.parametrize("method", ["squared", "paper"])
def test_other_methods_make_other_maps(name, method):
    X, y = blobs()
    found = make(name, method=method).fit(X)
    assert accuracy(found.embedding_, y) > 0.97
    assert np.abs(found.embedding_ - make(name).fit(X).embedding_).max() > 1e-3
    assert found.transform(X[:5]).shape == (5, 2)


@every_map
def test_a_site_that_drops_out_in_mid_run_is_not_on_the_map(name):
    X, y = blobs()
    fed = fs.federate(X, sites=np.arange(150) % 5, seed=1)

    def offline(replies, bad, rng, call):
        return {site: ({} if call.number > 8 else replies[site]) for site in bad}

    with pytest.warns(UserWarning, match="not on the map, because they did not post their distances: 3"):
        model = make(name, random_state=None).fit(fed.corrupt(offline, ["3"]))
    assert model.sites_ == ("0", "1", "2", "3", "4")
    assert len(model.embedding_) == 120
    assert model.embedding_at("3").shape == (0, 2)
    labels = np.concatenate([y[np.arange(150) % 5 == i] for i in (0, 1, 2, 4)])
    assert accuracy(model.embedding_, labels) > 0.97
    with pytest.raises(MessageError, match="most sites sent nothing as 'pull'"):
        make(name).fit(fed.corrupt(offline, ["1", "2", "3"]))


@every_map
def test_very_unequal_sites_change_nothing(name):
    X, _ = blobs()
    unequal = np.r_[np.zeros(147, dtype=int), 1, 2, 3]
    one, other = make(name).fit(X, sites=unequal), make(name).fit(X)
    np.testing.assert_allclose(one.landmarks_, other.landmarks_, atol=1e-9)
    np.testing.assert_array_equal(one.run_.metric("search_recall"), [1.0])
    assert [len(one.embedding_at(str(i))) for i in range(4)] == [147, 1, 1, 1]


@pytest.mark.parametrize("attack", [fs.attacks.NonFinite(), fs.attacks.WrongShape()])
def test_invalid_replies_exclude_their_site(attack):
    X, _ = blobs()
    fed = fs.federate(X, sites=np.arange(150) % 5, seed=1).corrupt(attack, ["2"])
    with pytest.warns(UserWarning, match=": 2"):
        model = make("FedTSNE").fit(fed)
    assert "2" in {site for _, site, _ in model.run_.failures}
    assert len(model.embedding_) == 120


@every_map
def test_options_reach_the_layout(name):
    X, _ = blobs(60)
    base = make(name).fit(X).embedding_
    options = {
        "FedTSNE": [{"perplexity": 4.0}, {"n_iter": 30}, {"early_exaggeration_iter": 10}],
        "FedUMAP": [{"n_neighbors": 5}, {"min_dist": 0.5}, {"spread": 2.0}, {"n_epochs": 20}],
    }[name]
    options += [{"n_landmarks": 10}, {"rounds": 3}, {"random_state": 1}]
    for changed in options:
        assert np.abs(make(name, **changed).fit(X).embedding_ - base).max() > 1e-3, changed
    plain, other = (make(name, landmark_settings=more).fit(X).landmarks_ for more in ({}, {"momentum": 0.5}))
    assert np.abs(plain - other).max() > 1e-3
    assert make(name, n_components=3).fit(X).embedding_.shape == (60, 3)
    assert make(name, rounds=0).fit(X).residuals_ is False
    assert make(name).fit(X).residuals_ is True
    np.testing.assert_array_equal(make(name, n_jobs=2).fit(X).landmarks_, make(name).fit(X).landmarks_)
    assert make(name, n_jobs=-1).fit(X).embedding_.shape == (len(X), 2)


def test_settings_that_cannot_work_are_refused():
    X, _ = blobs(30)
    for name, settings, message in [
        ("FedTSNE", {"share": "rows"}, "share='rows' must be one of 'distances', 'sums', 'centers'"),
        ("FedUMAP", {"share": "sums"}, "share='sums' must be one of 'distances'"),
        ("FedTSNE", {"method": "cubed"}, "method='cubed' must be one of"),
        ("FedTSNE", {"perplexity": 0.5}, "perplexity=0.5"),
        ("FedTSNE", {"n_iter": -1}, "n_iter=-1"),
        ("FedTSNE", {"neighbors": "descent", "method": "paper"}, "neighbors='descent' needs a metric"),
        ("FedTSNE", {"landmark_settings": {"width": 2}}, "landmark_settings has 'width', and may have gamma"),
        ("FedTSNE", {"landmark_settings": {"momentum": 2}}, "momentum=2"),
        ("FedTSNE", {"n_components": 0}, "n_components=0"),
        ("FedUMAP", {"n_neighbors": 1}, "n_neighbors=1"),
        ("FedUMAP", {"min_dist": 2.0}, r"min_dist=2.0 must be at most spread=1.0"),
        ("FedUMAP", {"n_epochs": 0}, "n_epochs=0"),
        ("FedUMAP", {"n_jobs": 0}, "n_jobs=0"),
    ]:
        with pytest.raises(InputError, match=message):
            make(name, **settings).fit(X)


def test_a_missing_package_is_named_before_any_site_is_contacted(monkeypatch):
    import importlib

    real = importlib.import_module

    def without(wanted, *more):
        if wanted.split(".")[0] == "openTSNE":
            raise ModuleNotFoundError("No module named 'openTSNE'", name="openTSNE")
        return real(wanted, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingPackageError, match=r'maps need openTSNE.*pip install "\.\[maps\]"'):
        make("FedTSNE").fit(blobs(30)[0])


def test_importing_fedspan_imports_no_layout():
    import subprocess
    import sys

    code = (
        "import fedspan, sys, numpy; fedspan.FedTSNE; X = numpy.random.default_rng(0).normal(size=(120, 4));"
        "fedspan.FedUMAP(n_epochs=2).fit(X);"
        "assert not {'umap', 'numba', 'openTSNE', 'pynndescent'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_few_and_thin_rows():
    line = np.linspace(0, 1, 20)[:, None]
    for name in MAPS:
        assert np.isfinite(make(name).fit(line).embedding_).all()
        assert np.isfinite(make(name).fit(blobs(5)[0]).embedding_).all()
        with pytest.raises(ValueError, match="minimum of 4"):
            make(name).fit(blobs(3)[0])
        with pytest.raises(InputError, match="n_samples=3: a map needs at least 4 rows"):
            make(name).fit(fs.federate(blobs(3)[0], sites=[0, 0, 1]))


def test_the_record_has_the_share_of_neighbours_that_the_map_keeps():
    X = np.random.default_rng(3).normal(size=(80, 4))
    model = fs.FedUMAP(30, rounds=3, n_epochs=30, random_state=0).fit(fs.federate(X, sites=np.arange(80) % 2))
    ten = [np.argsort(((model.factor_ - row) ** 2).sum(axis=1)) for row in model.factor_]
    near = [np.argsort(((model.embedding_ - row) ** 2).sum(axis=1)) for row in model.embedding_]
    kept = np.mean([len(set(a[1:11]) & set(b[1:11])) / 10 for a, b in zip(ten, near, strict=True)])
    logged = {name: value for entry in model.run_.metrics for name, value in entry.values.items()}
    assert logged["preserved"] == pytest.approx(kept, abs=0.01)  # residuals decide a few ties
    assert (logged["preserved_neighbors"], logged["preserved_sample"]) == (10, 80)
