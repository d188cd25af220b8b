"""Attacks on maps of centres, on made-up data whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.audit import Received, ReceivedMap, audit, from_model, from_run
from fedspan.audit.map_attacks import followed, lone_rows
from fedspan.linalg.layout.grid_repulsion import Grid

GRID = Grid(np.zeros(2), 1.0, 20)


def toy(n=80, positions=True, seed=0):
    """A map that shows the first two of three columns exactly, with a centre for each of four groups."""
    rng = np.random.default_rng(seed)
    groups = np.array([[0, 0, 0], [9, 0, 1], [0, 9, 2], [9, 9, 3.0]])
    truth, public = (groups[rng.integers(0, 4, n)] + 0.5 * rng.normal(size=(n, 3)) for _ in range(2))
    found = ReceivedMap(
        groups,
        np.full(4, n // 4),
        groups[:, :2],
        np.zeros(3),
        np.eye(3),
        lambda rows: rows[:, :2],
        truth[:, :2] if positions else None,
    )
    sites = np.zeros(n if positions else 0, dtype=np.int32)
    return Received("toy", "nowhere", ("a",), sites, map=found), truth, public


def by_name(card):
    return {entry.attack: entry for entry in card.entries}


def test_positions_give_rows_away():
    received, truth, public = toy(400)
    found = by_name(audit(received, truth=truth, public=public))
    assert set(found) == {
        "positions: nearest public rows",
        "positions: learned inverse",
        "positions: nearest centres",
        "positions: public rows and centres",
        "centres: the nearest one, given away",
        "centres: membership",
    }
    spread = np.sqrt(np.var(truth, axis=0).sum())
    # The nearest public rows are near in two columns, and off by the noise of the third, which is averaged.
    assert found["positions: nearest public rows"].measures["relative_error"] < 0.7 / spread
    assert found["positions: learned inverse"].measures["relative_error"] < 1.1 / spread
    # A centre is off by the noise of all three.
    for name in ("positions: nearest centres", "centres: the nearest one, given away"):
        assert found[name].measures["relative_error"] == pytest.approx(0.5 * np.sqrt(3) / spread, rel=0.1)
    assert found["positions: nearest centres"].facts["averaged_centres"] == 1
    least = min(found[f"positions: nearest {what}"].measures["relative_error"] for what in ("public rows", "centres"))
    assert found["positions: public rows and centres"].measures["relative_error"] < least + 0.005
    assert found["centres: membership"].measures["auc"] == pytest.approx(0.5, abs=0.06)
    for name, entry in found.items():
        assert entry.baseline
        assert entry.knows
        assert (entry.rebuilt is None) == (name == "centres: membership")


def test_no_attack_uses_the_truth_of_what_it_guesses():
    received, truth, public = toy(400)
    with_truth, without = by_name(audit(received, truth=truth, public=public)), by_name(audit(received, public=public))
    assert set(without) == {name for name in with_truth if name.startswith("positions")}
    for name, entry in without.items():
        np.testing.assert_array_equal(entry.rebuilt, with_truth[name].rebuilt)
        assert not entry.measures


def test_membership_is_seen_where_centres_are_rows():
    received, truth, public = toy(80, positions=False)
    own = ReceivedMap(truth, np.ones(80), truth[:, :2], np.zeros(3), np.eye(3), lambda rows: rows[:, :2])
    found = by_name(audit(Received("toy", "nowhere", map=own), truth=truth, public=public))
    assert found["centres: membership"].measures["auc"] == 1.0
    assert found["centres: the nearest one, given away"].measures["reidentified"] == 1.0
    swapped = by_name(audit(Received("toy", "nowhere", map=own), truth=public, public=truth))
    assert swapped["centres: membership"].measures["auc"] == 0.0
    assert received.columns == 3


def test_lone_rows_are_found_where_they_are():
    crowd = np.random.default_rng(0).uniform(4, 8, size=(200, 2))
    alone = np.array([[14.25, 3.5], [17.0, 17.0], [1.5, 15.75]])
    pair = np.array([[11.2, 16.3], [11.6, 16.4]])
    found = lone_rows(GRID.histogram(np.concatenate([crowd, alone, pair])))
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], alone[np.argsort(alone[:, 0])])


def test_rows_are_followed_while_they_are_alone():
    rng = np.random.default_rng(0)
    crowd = rng.uniform(6, 10, size=(300, 2))
    rounds = []
    for t in range(12):
        walker, late = np.array([15.0, 3.0 + t]), np.array([2.0, 16.0])
        hidden = late if t >= 5 else crowd[0]  # comes out of the crowd in round 5
        grid = Grid(np.array([-0.5, -0.3]) * (t % 3), 1.0 + 0.05 * (t % 3), 22)  # cells move and grow
        rounds.append(grid.histogram(np.concatenate([crowd, [walker, hidden]])))
    assert sorted(followed(rounds)) == [7, 12]
    card = audit(Received("toy", "journal", histograms=tuple(rounds)))
    (entry,) = card.entries
    assert entry.measures["followed"] == pytest.approx(1 / 302)
    assert entry.facts == {"rounds": 12, "alone_at_the_end": 2, "followed": 1, "longest": 12}
    assert "Of 302 rows 2 are alone" in entry.verdict
    assert any("The centres are not in the journal" in remark for remark in card.remarks)


def test_a_jump_is_another_row():
    crowd = np.random.default_rng(0).uniform(6, 10, size=(300, 2))
    rounds = [GRID.histogram(np.concatenate([crowd, [place]])) for place in ([15.0, 3.0], [15.0, 4.0], [2.0, 17.0])]
    assert followed(rounds[:2]).tolist() == [2]
    assert followed(rounds).tolist() == [1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 6)) + 8 * np.eye(3, 6)[rng.integers(0, 3, 240)]
    sites = np.array(["b", "a", "c"])[np.arange(240) % 3]
    folder = tmp_path_factory.mktemp("run")
    settings = {"rounds": 15, "exaggeration_rounds": 5, "codebooks": 2}
    with fs.federate(X[:120], sites=sites[:120], run_dir=folder) as fed:
        model = fs.FedTSNE(share="sums", post_positions=True, sums_settings=settings, random_state=0).fit(fed)
    return model, folder, {name: X[:120][sites[:120] == name] for name in "abc"}, X[120:]


def test_a_run_and_its_model_say_the_same(run):
    model, folder, truth, public = run
    by_run, by_model = (
        by_name(audit(source, truth=truth, public=public, **more))
        for source, more in ((folder, {"model": model}), (model, {}))
    )
    assert set(by_run) - set(by_model) == {
        "histograms: rows alone in a cell",
        "k-means sums: differences",
        "search: arrays per row",
    }
    assert "'positions'" in by_run["search: arrays per row"].verdict
    assert by_run["k-means sums: differences"].measures["exact"] == 0.0
    for name, entry in by_model.items():
        assert entry.measures == pytest.approx(by_run[name].measures, rel=1e-4)
    held = from_run(folder, model=model)
    assert (held.what, held.sites, len(held.histograms)) == ("FedTSNE(share='sums')", ("a", "b", "c"), 16)
    np.testing.assert_allclose(held.map.positions, from_model(model).map.positions)
    assert held.histograms[-1].sum() == pytest.approx(120)


def test_a_journal_alone_has_histograms_and_sums(run):
    _, folder, truth, public = run
    card = audit(folder, truth=truth, public=public)
    attacks = ["histograms: rows alone in a cell", "k-means sums: differences", "search: arrays per row"]
    assert [entry.attack for entry in card.entries] == attacks
    assert any("The centres are sums in the journal over their numbers" in remark for remark in card.remarks)
    assert not card.entries[1].measures  # along axes that the journal alone does not have


def test_positions_that_a_journal_keeps_are_attacked_and_it_is_said(run, tmp_path):
    _, _, truth, public = run
    X, sites = np.concatenate(list(truth.values())), np.repeat(list(truth), [len(rows) for rows in truth.values()])
    settings = {"rounds": 8, "codebooks": 2}
    with fs.federate(X, sites=sites, run_dir=tmp_path, policy=fs.Policy(secure_sum=True)) as fed:
        model = fs.FedTSNE(share="sums", sums_settings=settings, random_state=0).fit(fed)
    card = audit(tmp_path, model=model, truth=truth, public=public)
    assert "positions: nearest centres" in by_name(card)
    assert any("has their state: every row's position" in remark for remark in card.remarks)
    assert from_run(tmp_path, model=model).map.positions.shape == (120, 2)


def test_a_map_that_posted_nothing(run):
    _, _, truth, public = run
    X = np.concatenate(list(truth.values()))
    fed = fs.federate(X, sites=np.arange(len(X)) % 3)
    settings = {"rounds": 10, "exaggeration_rounds": 5, "codebooks": 2}
    model = fs.FedTSNE(share="centers", sums_settings=settings, random_state=0).fit(fed)
    card = audit(model, truth=truth, public=public)
    assert {entry.attack for entry in card.entries} == {"centres: the nearest one, given away", "centres: membership"}
    assert any("No positions were posted" in remark for remark in card.remarks)
