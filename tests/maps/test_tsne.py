"""FedTSNE(share="sums") and its one-shot form: attributes, new rows, secure sums, and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.linalg.layout.map_quality import map_neighbors
from tests.maps.blob_maps import accuracy, blobs

QUICK = {"rounds": 60, "exaggeration_rounds": 20, "grid": 32, "codebooks": 3, "rows_per_centre": 10.0}


both = pytest.mark.parametrize("share", ["sums", "centers"])


def make(share="sums", **more):
    settings = {**QUICK, **more.pop("sums_settings", {})}
    return fs.FedTSNE(share=share, sums_settings=settings, **{"random_state": 0, **more})


@fs.step
def own_rows(site):
    return {"X": site.X}


@both
def test_a_table_has_its_embedding_in_the_order_of_its_rows(share):
    X, y = blobs()
    sites = np.array(["c", "a", "b"])[np.arange(150) % 3]
    model = make(share).fit(X, sites=sites)
    assert model.embedding_.shape == (150, 2)
    assert accuracy(model.embedding_, y) > 0.97
    np.testing.assert_array_equal(np.array(model.sites_)[model.row_sites_], sites)
    posted = make(share, post_positions=True).fit(fs.federate(X, sites=sites))
    for name in "abc":
        np.testing.assert_array_equal(posted.embedding_at(name), model.embedding_[sites == name])
    np.testing.assert_array_equal(make(share).fit_transform(X, sites=sites), model.embedding_)


@both
def test_positions_of_a_federation_stay_at_its_sites(share):
    X, _ = blobs()
    fed = fs.federate(X, sites=np.arange(150) % 3)
    model = make(share).fit(fed)
    assert not hasattr(model, "embedding_")
    for reach in (lambda: model.embedding_, lambda: model.embedding_at("0"), lambda: make(share).fit_transform(fed)):
        with pytest.raises(AttributeError, match=r"stay at its sites; fit with post_positions=True, or let the sites"):
            reach()
    steps = {call.step for call in model.run_.calls}
    assert not steps & {"maps.positions", "maps.places"}
    assert ("maps.move" in steps) == (share == "sums")
    with pytest.raises(AttributeError, match="has no attribute 'other_'"):
        _ = model.other_


@both
def test_what_the_coordinator_ends_with(share):
    X, y = blobs(300)
    model = make(share).fit(fs.federate(X, sites=np.arange(300) % 3))
    assert model.centers_.shape == (len(model.center_positions_), 6)
    assert model.center_counts_.min() >= 5
    assert model.density_.shape == (32, 32)
    assert model.density_.sum() == pytest.approx(300)
    left, right, bottom, top = model.density_extent_
    assert right - left == pytest.approx(top - bottom)
    inside = (model.center_positions_ > [left, bottom]) & (model.center_positions_ < [right, top])
    assert inside.all()
    # A centre is a mean of rows, seen along all six axes here, and lies among the rows of one class.
    nearest = np.linalg.norm(model.centers_[:, None] - X, axis=2).argmin(axis=1)
    assert accuracy(model.center_positions_, y[nearest]) > 0.9


@both
def test_new_rows_land_among_their_like_here_and_at_sites(share, tmp_path):
    X, y = blobs()
    model = make(share).fit(X, sites=np.arange(150) % 3)
    new, labels = blobs(60, seed=5)
    found = model.transform(new)
    assert (KNeighborsClassifier(5).fit(model.embedding_, y).predict(found) == labels).mean() > 0.95
    assert model.transform(new.astype(np.float32)).dtype == np.float32
    model.save(tmp_path / "map")
    loaded = fs.load(tmp_path / "map")
    np.testing.assert_array_equal(loaded.transform(new), found)
    placed = loaded.transform(fs.federate(new, sites=np.arange(60) % 2, wire=True))
    np.testing.assert_allclose(placed.ask(own_rows)["1"]["X"], model.transform(new[1::2]), atol=1e-6)
    if share == "centers":
        np.testing.assert_allclose(model.transform(X), model.embedding_, atol=1e-4)
    clone(loaded).fit(X)


@both
def test_secure_sums_end_to_end(share):
    X, _ = blobs(90)
    sites = np.arange(90) % 4
    settings = {"rounds": 4, "exaggeration_rounds": 2}
    plain = make(share, sums_settings=settings).fit(fs.federate(X, sites=sites))
    policy = fs.Policy(secure_sum=True)
    secure = make(share, sums_settings=settings).fit(fs.federate(X, sites=sites, policy=policy))
    np.testing.assert_allclose(secure.center_positions_, plain.center_positions_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(secure.density_, plain.density_, atol=1e-5)
    fed = fs.federate(X, sites=sites, policy=policy)
    with pytest.raises(PolicyError, match=r"FedTSNE\(post_positions=True\) needs the replies of single sites"):
        make(share, post_positions=True).fit(fed)
    with pytest.raises(PolicyError, match=r"FedTSNE\(share='distances'\) needs the replies of single sites"):
        fs.FedTSNE().fit(fed)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_landmarks": 20}, "n_landmarks=20 has no effect with share='sums'"),
        ({"rounds": 10}, "rounds=10 has no effect with share='sums'"),
        ({"n_components": 3}, "n_components=3 has no effect"),
        ({"perplexity": 5.0}, "perplexity=5.0 has no effect"),
        ({"method": "paper"}, "method='paper' has no effect"),
        ({"landmark_settings": {"gamma": 1.0}}, "landmark_settings=.* has no effect"),
        ({"post_positions": 1}, "post_positions=1 must be True or False"),
        ({"sums_settings": {"width": 2}}, "sums_settings has 'width', and may have rounds, exaggeration_rounds"),
        ({"sums_settings": {"rounds": 10, "exaggeration_rounds": 20}}, "exaggeration_rounds=20"),
        ({"sums_settings": {"grid": 4}}, "grid=4"),
        ({"sums_settings": {"own_share": 2.0}}, "own_share=2.0"),
        ({"sums_settings": {"least_rows": 30}}, "rows_per_centre=10.0 must be .* at least 30|rows_per_centre=10.0"),
        ({"sums_settings": {"axes": 1}}, "axes=1"),
        ({"share": "distances", "post_positions": True}, "post_positions=True has no effect with share='distances'"),
        ({"share": "distances"}, "sums_settings=.* has no effect with share='distances'"),
    ],
)
def test_settings_that_cannot_work_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        make(**parameters).fit(blobs(30)[0])


@both
def test_few_and_thin_rows(share):
    line = np.linspace(0, 1, 20)[:, None]
    assert np.isfinite(make(share).fit(line).embedding_).all()
    assert np.isfinite(make(share).fit(np.ones((20, 3))).embedding_).all()
    unequal = np.r_[np.zeros(17, dtype=int), 1, 2, 2]
    assert make(share).fit(line, sites=unequal).embedding_at("2").shape == (2, 2)
    with pytest.raises(ValueError, match="minimum of 5"):
        make(share).fit(blobs(4)[0])
    with pytest.raises(InputError, match="n_samples=4: a map needs at least least_rows=5 rows"):
        make(share).fit(fs.federate(blobs(4)[0], sites=[0, 0, 1, 1]))


def test_another_share_leaves_nothing_of_the_last_fit(monkeypatch):
    X, _ = blobs(60)
    model = make().fit(X)
    model.set_params(share="distances", sums_settings=None, n_landmarks=10, early_exaggeration_iter=5, n_iter=5).fit(X)
    assert not hasattr(model, "centers_")
    model.set_params(share="sums", n_landmarks="auto", early_exaggeration_iter=250, n_iter=500, sums_settings=QUICK)
    model.fit(fs.federate(X, sites=np.arange(60) % 2))
    assert not hasattr(model, "landmarks_")
    assert not hasattr(model, "embedding_")


IN_THE_PLANE = dict.fromkeys(
    (
        "check_dont_overwrite_parameters",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1sample",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
    ),
    "it sets n_components=1, and this map is one in the plane",
)


LAYS_OUT = dict.fromkeys(
    ("check_transformer_general", "check_transformer_data_not_an_array"),
    "fit lays rows out, and transform places them by centres: that is not the same",
)


@parametrize_with_checks(
    [fs.FedTSNE(share="sums", sums_settings={"rounds": 2, "exaggeration_rounds": 1})],
    expected_failed_checks=lambda _: IN_THE_PLANE | LAYS_OUT,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_lines_of_the_page_run(capsys):
    page = Path(__file__).parents[2] / "docs" / "private-map.md"
    names: dict[str, object] = {}
    for lines in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        exec(compile(lines, str(page), "exec"), names)
    printed = capsys.readouterr().out
    assert printed.startswith("(64, 64) (")
    assert "epsilon 8 (accountant: 8) at delta 1e-05 for one row of one site added or removed" in printed


def test_settings_are_a_dict():
    with pytest.raises(InputError, match=r"sums_settings=\[1\] must be a dict of settings"):
        fs.FedTSNE(share="sums", sums_settings=[1]).fit(blobs(60)[0])


def test_noise_on_centres_is_refused_with_sums():
    privacy = fs.privacy.GaussianCenters(8.0, 1e-5, clip=9.0)
    with pytest.raises(InputError, match="does not go with share='sums': GaussianCenters goes with share='centers'"):
        fs.FedTSNE(share="sums", privacy=privacy).fit(blobs(60)[0])


def test_the_record_has_only_settings_that_count():
    model = make("centers", sums_settings={"rounds": 3, "exaggeration_rounds": 1}).fit(blobs(60)[0])
    assert not {"n_landmarks", "method", "perplexity", "rounds"} & set(model.run_.settings)
    assert {"share", "sums_settings", "post_positions", "random_state"} <= set(model.run_.settings)


@pytest.mark.parametrize("model", [fs.FedUMAP(), fs.FedSpectralClustering(2), fs.FedTSNE()])
def test_posted_distances_are_refused_under_secure_sums_before_any_contact(model, monkeypatch):
    def contacted(*_, **__):
        raise AssertionError("a site was contacted")

    fed = fs.federate(blobs(60)[0], sites=np.arange(60) % 4, policy=fs.Policy(secure_sum=True))
    monkeypatch.setattr(fs.Federation, "_call", contacted)
    with pytest.raises(PolicyError, match=rf"{type(model).__name__}\(share='distances'\) needs the replies"):
        model.fit(fed)


def test_a_map_on_a_device_needs_no_opentsne_and_is_repeatable(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 3
    X = 6 * np.eye(3, 5)[kind] + rng.normal(size=(90, 5))
    settings = {"rounds": 5, "early_exaggeration_iter": 50, "n_iter": 50, "random_state": 0, "device": "cpu"}
    model = fs.FedTSNE(20, **settings).fit(X, sites=np.arange(90) % 2)
    again = fs.FedTSNE(20, **settings).fit(X, sites=np.arange(90) % 2)
    np.testing.assert_array_equal(model.embedding_, again.embedding_)
    near = map_neighbors(model.embedding_, 5)
    assert np.mean(kind[near] == kind[:, None]) > 0.9
    assert np.isfinite(model.kl_divergence_)
    assert len(model.run_.metric("kl_divergence")) == 4
    with pytest.raises(InputError, match="on a device a t-SNE map has 2"):
        fs.FedTSNE(20, n_components=3, device="cpu").fit(X, sites=kind)
