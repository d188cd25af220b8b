"""Maps along principal axes: quality, new rows, saved maps, journals, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import fedspan as fs
from fedspan.audit import audit, trilaterate
from fedspan.audit.feddl_replay import replay_feddl
from fedspan.audit.received import from_run
from fedspan.audit.sums_attack import rows_from_sums
from fedspan.errors import InputError
from fedspan.landmarks.feddl import feddl
from tests.landmarks.wide_rows import COLUMNS, wide
from tests.maps.blob_maps import accuracy

MAPS = {"FedTSNE": {"early_exaggeration_iter": 30, "n_iter": 50}, "FedUMAP": {"n_epochs": 50}}


def make(name, **more):
    return getattr(fs, name)(**{"random_state": 0, **MAPS[name], **more})


@fs.step
def own_rows(site):
    return {"X": site.X}


@pytest.fixture(scope="module", params=MAPS)
def fitted(request):
    X, groups = wide()
    return make(request.param).fit(X, sites=groups), X, groups


def test_rows_of_many_columns_are_reduced_by_default(fitted):
    model, X, groups = fitted
    assert model.axes_.shape == (30, COLUMNS)
    assert model.landmarks_.shape == (60, COLUMNS)
    assert model.residuals_ is True
    assert accuracy(model.embedding_, groups) == 1.0
    assert make(type(model).__name__, reduce=None, n_landmarks=20, rounds=3).fit(X).axes_ is None
    assert len(model.run_.metric("objective")) <= 50
    assert 0.5 < model.run_.metric("site_recall")[0] < 1


def test_new_rows_go_through_the_axes_here_and_at_sites(fitted, tmp_path):
    model, X, groups = fitted
    new, labels = wide(40, seed=7)
    found = model.transform(new)
    assert (KNeighborsClassifier(5).fit(model.embedding_, groups).predict(found) == labels).all()
    # What the axes do not hold does not count.
    axes = model.axes_.astype(np.float64)
    outside = np.random.default_rng(1).normal(size=new.shape)
    outside -= outside @ axes.T @ np.linalg.pinv(axes.T)
    np.testing.assert_allclose(model.transform(new + 5 * outside), found, atol=1e-3 * np.abs(found).max())
    model.save(tmp_path / "map")
    loaded = fs.load(tmp_path / "map")
    np.testing.assert_array_equal(loaded.transform(new), found)
    placed = loaded.transform(fs.federate(new, sites=np.arange(40) % 2, wire=True))
    np.testing.assert_allclose(placed.ask(own_rows)["1"]["X"], found[1::2], rtol=1e-4, atol=1e-4)
    assert np.isfinite(model.transform(1e200 * X[:2])).all()


@pytest.mark.parametrize("method", ["squared", "paper"])
def test_other_methods_place_rows_of_the_map_where_they_are(method):
    X, groups = wide()
    model = make("FedUMAP", method=method, reduce=6).fit(X, sites=groups)
    apart = np.linalg.norm(model.transform(X) - model.embedding_, axis=1)
    assert np.median(apart) < 0.2 * model.embedding_.std()


def test_the_order_of_sites_and_the_wire_do_not_matter():
    X, groups = wide(60)
    model = make("FedUMAP").fit(X, sites=groups)
    wired = make("FedUMAP").fit(fs.federate(X, sites=groups, wire=True, n_jobs=2))
    order = np.argsort(groups, kind="stable")
    np.testing.assert_array_equal(wired.embedding_, model.embedding_[order])


def test_an_audit_finds_the_part_of_rows_along_the_axes(tmp_path):
    X, groups = wide()
    order = np.argsort(groups, kind="stable")
    model = make("FedUMAP", reduce=6).fit(fs.federate(X, sites=groups, run_dir=tmp_path))
    error = np.sqrt(1 - model.run_.metric("explained")[0])
    card = audit(model, truth=X[order])
    assert card.entries[0].attack == "trilateration"
    assert card.entries[0].measures["relative_error"] == pytest.approx(error, rel=0.01)
    (journal,) = tmp_path.glob("**/journal")
    landmarks, sums = replay_feddl(journal)
    np.testing.assert_array_equal(landmarks, model.landmarks_)
    assert sums.unknowns == 160 * 6
    posted = from_run(tmp_path)
    np.testing.assert_allclose(trilaterate(posted.distances, landmarks).rows, card.entries[0].rebuilt, rtol=1e-3)


def test_totals_of_few_rows_are_attacked_along_the_axes(tmp_path):
    X, groups = wide(12)
    with fs.federate(X, sites=groups, run_dir=tmp_path).begin("FedTSNE", {"reduce": 3, "rounds": 8}, 0) as run:
        feddl(run, reduce=3, rounds=8, precision="double")
    (journal,) = tmp_path.glob("**/journal")
    _, sums = replay_feddl(journal)
    true = fs.FedPCA(3).fit(X).inverse_transform(fs.FedPCA(3).fit(X).transform(X))
    found = rows_from_sums(sums, start=true + 0.1 * np.random.default_rng(0).normal(size=X.shape), work=1e8)
    np.testing.assert_allclose(found.rows, true, atol=1e-2)


def test_a_resumed_run_is_the_same(tmp_path):
    X, groups = wide(60)
    fits = [make("FedUMAP").fit(fs.federate(X, sites=groups, run_dir=tmp_path)) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].embedding_, fits[1].embedding_)


def test_noise_goes_with_columns_only():
    X, groups = wide(60)
    privacy = fs.privacy.GaussianGradient(8.0, 1e-5)
    with pytest.raises(InputError, match=r"reduce=5 does not go with privacy=.*put FedPCA"):
        make("FedUMAP", reduce=5, privacy=privacy).fit(X)
    with pytest.raises(InputError, match="reduce='some' must be 'auto', None, a number of axes"):
        make("FedUMAP", reduce="some").fit(X)
    noisy = make("FedUMAP", privacy=privacy, n_landmarks=20).fit(X, sites=groups)
    assert noisy.axes_ is None
    assert len(noisy.run_.calls) > 50
