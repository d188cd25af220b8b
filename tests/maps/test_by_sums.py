"""The map by sums: its density, faults, resumption, the journal, and its settings."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.site.call_context import CallContext
from fedspan.maps import by_sums as protocol
from tests.maps.blob_maps import accuracy, blobs

QUICK = {"rounds": 60, "exaggeration_rounds": 20, "grid": 32, "codebooks": 3, "rows_per_centre": 10.0}


both = pytest.mark.parametrize("share", ["sums", "centers"])


def make(share="sums", **more):
    settings = {**QUICK, **more.pop("sums_settings", {})}
    return fs.FedTSNE(share=share, sums_settings=settings, **{"random_state": 0, **more})


def test_the_density_is_that_of_the_positions():
    X, _ = blobs()
    model = make().fit(X, sites=np.arange(150) % 3)
    left, right, bottom, _ = model.density_extent_
    cell = (right - left) / 31
    expected = np.zeros((32, 32))
    for x, y in (model.embedding_ - [left, bottom]) / cell:
        i, j = min(int(x), 30), min(int(y), 30)
        for a, across in ((i, 1 - x + i), (i + 1, x - i)):
            for b, up in ((j, 1 - y + j), (j + 1, y - j)):
                expected[a, b] += across * up
    np.testing.assert_allclose(model.density_, expected, atol=1e-4)


def test_parameters_of_transforms_do_not_travel_with_every_round():
    X, _ = blobs()
    wide = np.concatenate([X, np.zeros((len(X), 500))], axis=1)
    fed = fs.federate(wide, sites=np.arange(150) % 3)
    seen = fs.FedPCA(4, random_state=0).fit(fed).transform(fed)
    model = make(sums_settings={"rounds": 3, "exaggeration_rounds": 1}).fit(seen)
    sizes = {call.step: call.bytes_down["0"] for call in model.run_.calls}
    assert sizes["maps.ties"] > 8 * 4 * wide.shape[1]  # the components
    payload = 8 * (2 * 32 * 32 + 2 * len(model.center_positions_))
    assert payload < sizes["maps.move"] < payload + 1000


def test_a_site_that_drops_out_in_mid_run_is_not_on_the_map():
    X, y = blobs()
    sites = np.arange(150) % 5
    fed = fs.federate(X, sites=sites, seed=1)

    def offline(replies, bad, rng, call):
        return {site: ({} if call.step == "maps.positions" or call.number > 60 else replies[site]) for site in bad}

    with pytest.warns(UserWarning, match="no positions of the rows of these sites, which did not post them: 3"):
        model = make(post_positions=True, random_state=None).fit(fed.corrupt(offline, ["3"]))
    assert model.embedding_at("3").shape == (0, 2)
    assert model.density_.sum() == pytest.approx(120)
    assert accuracy(model.embedding_, np.concatenate([y[sites == i] for i in (0, 1, 2, 4)])) > 0.97


def test_a_site_that_returns_continues_where_it_was():
    X, y = blobs()
    sites = np.arange(150) % 9
    fed = fs.federate(X, sites=sites, seed=1).with_faults(fs.FaultPlan(seed=1, drop=0.1))
    model = make(post_positions=True, random_state=None).fit(fed)
    assert len(model.run_.failures) > 20
    assert np.isfinite(model.embedding_).all()
    labels = np.concatenate([y[sites == i] for i in range(9) if len(model.embedding_at(str(i)))])
    assert accuracy(model.embedding_, labels) > 0.95


def test_a_resumed_map_is_the_same_map(tmp_path):
    X, _ = blobs(60)

    def fit():
        return make(post_positions=True, random_state=None, sums_settings={"rounds": 8, "exaggeration_rounds": 3}).fit(
            fs.federate(X, sites=np.arange(60) % 3, seed=5, run_dir=tmp_path)
        )

    first = fit()
    journal = tmp_path / "run-000" / "journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: int(0.8 * len(whole))])
    again = fit()
    assert any(call.replayed and call.step == "maps.move" for call in again.run_.calls)
    assert any(not call.replayed and call.step == "maps.move" for call in again.run_.calls)
    np.testing.assert_array_equal(again.embedding_, first.embedding_)
    np.testing.assert_array_equal(again.density_, first.density_)


def test_the_journal_grows_by_twenty_bytes_a_row_and_round(tmp_path):
    X, _ = blobs(400)
    sizes = []
    for number, rounds in enumerate((4, 14)):
        fed = fs.federate(X, sites=np.arange(400) % 2, seed=5, run_dir=tmp_path / str(number))
        make(sums_settings={"rounds": rounds, "exaggeration_rounds": 2, "grid": 8, "codebooks": 1}).fit(fed)
        sizes.append((tmp_path / str(number) / "run-000" / "journal").stat().st_size)
    per_round = (sizes[1] - sizes[0]) / 10
    assert 20 * 400 < per_round < 20 * 400 + 8 * (64 + 3 * 40) + 3000


def test_without_ties_among_rows_the_split_changes_nothing():
    X, _ = blobs(120)
    settings = {"own_share": 0.0, "rounds": 6, "exaggeration_rounds": 3}
    one = make(sums_settings=settings).fit(X)
    many = make(sums_settings=settings).fit(X, sites=np.arange(120) % 7)
    np.testing.assert_allclose(many.embedding_, one.embedding_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(many.center_positions_, one.center_positions_, rtol=1e-5, atol=1e-7)


def test_rows_far_from_all_others_stay_near_the_map():
    X, _ = blobs(300)
    X = np.r_[X, 1e3 * np.eye(6)[:2], np.repeat(X[:1], 40, axis=0)]  # two far ones, and forty copies of one row
    model = make(sums_settings={"rounds": 150, "exaggeration_rounds": 40}).fit(X, sites=np.arange(342) % 4)
    radius = np.linalg.norm(model.embedding_ - np.median(model.embedding_, axis=0), axis=1)
    assert np.isfinite(radius).all()
    assert radius.max() < 3 * np.quantile(radius, 0.9)


@pytest.mark.parametrize(
    "changed",
    [
        {"rounds": 40},
        {"exaggeration_rounds": 10},
        {"grid": 24},
        {"neighbours": 10},
        {"perplexity": 3.0},
        {"own_neighbours": 3},
        {"own_perplexity": 3.0},
        {"own_share": 0.5},
        {"codebooks": 2},
        {"rows_per_centre": 20.0},
        {"least_rows": 8},
        {"axes": 3},
        {"k_means_rounds": 1},
    ],
    ids=str,
)
def test_every_setting_matters(changed):
    X = np.random.default_rng(0).normal(size=(100, 6)) * [4, 3, 2, 1, 1, 1]
    few = {"rounds": 12, "exaggeration_rounds": 4}
    sites = np.arange(100) % 3
    base = make(sums_settings=few).fit(X, sites=sites).embedding_
    assert np.abs(make(sums_settings={**few, **changed}).fit(X, sites=sites).embedding_ - base).max() > 1e-4


def test_the_record_follows_the_layout():
    X, _ = blobs()
    record = make().fit(X).run_
    assert record.metric("phase") == ["axes", "codebooks", "layout"]
    assert len(record.metric("loss")) == 60
    assert record.metric("loss")[-1] < record.metric("loss")[25]
    assert record.stopped.startswith("map of 150 rows by ")


def test_a_site_that_misses_the_beginning_is_requested_again():
    X, _ = blobs()
    tries = []

    def late(replies, bad, rng, call):
        tries.append(call.step == "maps.ties")
        return {site: ({} if sum(tries) == 1 and tries[-1] else replies[site]) for site in bad}

    fed = fs.federate(X, sites=np.arange(150) % 5, seed=1).corrupt(late, ["2"])
    model = make(post_positions=True, random_state=None, sums_settings={"rounds": 5, "exaggeration_rounds": 1}).fit(fed)
    assert sum(tries) == 2
    assert len(model.embedding_at("2")) == 30
    assert model.density_.sum() == pytest.approx(150)


def test_a_site_that_missed_the_beginning_reports_it():
    site = fs.Site("a", np.zeros((3, 2))).in_call(CallContext({}, number=0))
    with pytest.raises(InputError, match="missed the beginning"):
        protocol.local_view(site, np.zeros((1, 2)), np.zeros(2), 1.0, 8)


@both
def test_a_map_of_few_centres_does_not_shrink_to_a_point(share):
    X = np.random.default_rng(0).normal(size=(400, 6))  # no groups, and every row is tied to every centre
    settings = {"rows_per_centre": 40.0, "codebooks": 1, "exaggeration_rounds": 50, "rounds": 80, "own_share": 0.0}
    model = make(share, sums_settings=settings).fit(fs.federate(X, sites=np.arange(400) % 3))
    left, right, _, _ = model.density_extent_
    assert right - left > 0.1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("share", "noise"), [("sums", False), ("centers", False), ("centers", True)])
def test_equal_rows_share_a_place(share, noise):
    privacy = fs.privacy.GaussianCenters(8.0, 1e-5, clip=9.0, center=1.0) if noise else None
    for values in (np.ones((1, 4)), np.array([[0.0, 1, 2, 3], [5, 5, 5, 5]])):
        X = np.repeat(values, 120 // len(values), axis=0)  # far more rows than the noise hides
        settings = {"grid": 16}  # all 300 rounds: the map shrinks to a point
        model = fs.FedTSNE(share=share, privacy=privacy, random_state=0, sums_settings=settings)
        Y = model.fit(X, sites=np.arange(120) % 10).embedding_
        assert np.isfinite(Y).all()
        assert len(np.unique(Y.round(6), axis=0)) == len(values)


def test_a_quarter_of_the_rounds_is_exaggerated_by_default():
    assert protocol.Layout().early == 75
    assert protocol.Layout(rounds=5).early == 1
    assert protocol.Layout(rounds=5, exaggeration_rounds=5).early == 5
    make(sums_settings={"rounds": 5, "exaggeration_rounds": None}).fit(blobs(60)[0])
