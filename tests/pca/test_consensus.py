"""FedPE and FedPG from the first round to the last: where they end, which sites count, and what is recorded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation import EndingKind
from fedspan.linalg import subspace_distance
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg
from fedspan.pca.parts import consensus, second_moment
from fedspan.pca.parts.consensus import augmented_lagrangian, begin_visit, end_visit
from fedspan.pca.parts.second_moment import SecondMoment

from .consensus_sites import SITES, TRUTH, D, K, federation, leading_axes, loss, run, unlike_sites
from .random_visits import Setting, visited_site

both = pytest.mark.parametrize("protocol", [fedpe, fedpg], ids=["fedpe", "fedpg"])


@fs.step
def peek(site):
    return {"U": site.state["U"], "Y": site.state["Y"]}


@both
def test_the_result_is_the_pca_of_all_rows_however_unequal_the_sites(protocol):
    U, weights, record = run(federation(), protocol, tol=1e-9)
    assert record.stopped.kind is EndingKind.CONVERGED
    np.testing.assert_allclose(U.T @ U, np.eye(K), atol=1e-13)
    assert subspace_distance(U, TRUTH) < 1e-7
    assert weights == dict.fromkeys(federation().sites, 1 / 9)


@both
def test_default_settings_stop_by_themselves_near_the_solution(protocol):
    U, _, record = run(federation(), protocol)
    assert record.stopped.kind is EndingKind.CONVERGED
    assert record.metric("consensus")[-1] <= 1e-4
    assert subspace_distance(U, TRUTH) < 1e-3


@both
def test_one_site_is_ordinary_pca(protocol):
    sites = SITES[5:6]
    U, weights, record = run(federation(sites), protocol, tol=1e-8, max_rounds=300)
    assert subspace_distance(U, leading_axes(sites)) < 1e-6
    assert weights == {"s05": 1.0}
    assert record.metric("consensus")[-1] < 1e-8


def test_some_sites_at_a_time_end_where_all_do():
    U, _, record = run(federation(), participation=0.3, tol=1e-8)
    assert record.stopped.kind is EndingKind.CONVERGED
    assert subspace_distance(U, TRUTH) < 1e-7
    assert {len(call.asked) for call in record.calls[1:]} == {3}


def test_the_start_may_be_turned_within_its_span_or_be_another_one(monkeypatch):
    Q = np.linalg.qr(np.random.default_rng(5).normal(size=(K, K)))[0]
    plain = consensus.random_basis
    monkeypatch.setattr(consensus, "random_basis", lambda *arguments: plain(*arguments) @ Q)
    turned, _, _ = run(federation(), tol=1e-8)
    assert subspace_distance(turned, TRUTH) < 1e-7
    monkeypatch.undo()
    assert subspace_distance(run(federation(seed=7), tol=1e-8)[0], TRUTH) < 1e-7


def test_duals_add_up_to_zero_when_all_answer():
    for variant in ("corrected", "paper"):
        for rounds in (1, 2, 7):
            with federation().begin("test") as fed:
                fedpg(fed, rank=K, n_columns=D, variant=variant, rho=0.35, max_rounds=rounds)
                Y = fed.ask(peek).stack("Y")
            np.testing.assert_allclose(Y.sum(axis=0), 0.0, atol=1e-11)
            assert np.abs(Y).max() > 0.1 or (rounds, variant) == (1, "corrected")  # updated at the next visit


def test_as_written_and_corrected_are_one_algorithm_for_one_column_and_all_sites():
    """With one column there is nothing to turn: then only the polar factor at the end is left of the differences."""
    settings = {"rank": 1, "n_columns": D, "rho": 0.35, "max_rounds": 9}
    corrected, _ = federation().run(fedpg, **settings)
    as_written, _ = federation().run(fedpg, variant="paper", **settings)
    assert 1e-4 < abs(np.linalg.norm(as_written) - 1.0) < 0.5
    np.testing.assert_allclose(as_written / np.linalg.norm(as_written), corrected, atol=1e-12)


def test_as_written_averages_the_sampled_sites_and_sends_them_the_result():
    U, weights, record = run(federation(), variant="paper", rho=0.35, participation=0.4, max_rounds=5)
    assert len(weights) == 4
    assert set(weights) == set(record.calls[-2].asked)
    steps = [call.step for call in record.calls]
    assert steps == ["pca.spectrum", *["pca.fedpg_update", "pca.dual"] * 5]
    assert all(a.answered == b.asked for a, b in zip(record.calls[1::2], record.calls[2::2], strict=True))
    assert np.abs(U.T @ U - np.eye(K)).max() > 1e-3


def test_as_written_does_not_settle_where_corrected_does():
    settings = {"participation": 0.3, "max_rounds": 300, "rho": 0.35}
    gaps = {}
    for variant in ("corrected", "paper"):
        U, _, _ = run(federation(), variant=variant, **settings)
        gaps[variant] = loss(SITES, U) - loss(SITES, TRUTH)
    assert gaps["corrected"] < 1e-6
    assert gaps["paper"] > 1e-3


def test_the_average_of_one_round_settles_only_when_all_sites_are_in_it():
    """By FedPE, where it is the only difference: there is no projection to correct."""
    gaps = {}
    for variant, participation in (("paper", 1.0), ("paper", 0.3), ("corrected", 0.3)):
        settings = {"variant": variant, "participation": participation, "max_rounds": 200, "rho": 0.35}
        U, _, _ = run(federation(), fedpe, **settings)
        gaps[variant, participation] = loss(SITES, U) - loss(SITES, TRUTH)
    assert gaps["paper", 1.0] < 1e-5
    assert gaps["corrected", 0.3] < 1e-5
    assert gaps["paper", 0.3] > 1e-2


def test_rho_is_in_units_of_the_largest_local_eigenvalue():
    rows = np.mean([len(site) for site in SITES])
    largest = max(np.linalg.eigvalsh(site.X.T @ site.X / rows)[-1] for site in SITES)
    for protocol, rho, expected in ((fedpg, None, 0.35), (fedpe, None, 1.0), (fedpg, 2.0, 2.0)):
        record = run(federation(), protocol, rho=rho, max_rounds=1)[2]
        assert record.metric("rho") == pytest.approx([expected * largest])
        assert record.metric("rho_unit") == pytest.approx([largest])
    # as written f is a sum over rows, and rho is 1
    assert run(federation(), variant="paper", max_rounds=1)[2].metric("rho") == pytest.approx([1.0 / rows])
    assert run(federation(), variant="paper", rho=2.0, max_rounds=1)[2].metric("rho") == pytest.approx([2.0 * largest])


@both
def test_the_record_of_each_round(protocol):
    U, _, record = run(federation(), protocol, max_rounds=12, tol=1e-12)
    rounds = [entry.values for entry in record.metrics if "loss" in entry.values]
    assert [entry.round for entry in record.metrics if "loss" in entry.values] == list(range(12))
    assert set(rounds[0]) == {"loss", "augmented_lagrangian", "consensus", "bytes"}
    sent = [sum(call.bytes_down.values()) + sum(call.bytes_up.values()) for call in record.calls[1:]]
    assert [values["bytes"] for values in rounds] == sent
    assert min(sent) > 2 * 9 * 8 * D * K
    # of the Z before the round: after one more round it is the loss of what this run returned
    after = run(federation(), protocol, max_rounds=13, tol=1e-12)[2].metric("loss")[-1]
    assert after == pytest.approx(loss(SITES, U), rel=1e-12)
    assert rounds[0]["consensus"] == pytest.approx(0.0, abs=1e-14)
    assert rounds[0]["augmented_lagrangian"] == pytest.approx(rounds[0]["loss"])
    assert rounds[-1]["loss"] < rounds[0]["loss"]


def test_the_logged_lagrangian_and_consensus_are_those_of_the_sites():
    with federation().begin("test") as fed:
        fedpg(fed, rank=K, n_columns=D, variant="paper", rho=0.35, max_rounds=6)
        kept = fed.ask(peek)
    rho = fed.record.metric("rho")[0]
    U, Y = kept.stack("U"), kept.stack("Y")
    Z = U.mean(axis=0)  # equation (11), because the duals add up to zero
    rows = np.mean([len(site) for site in SITES])
    parts = []
    for site, u, y in zip(SITES, U, Y, strict=True):
        f = np.sum((site.X - site.X @ u @ u.T) ** 2) / rows
        parts.append(f + np.sum(y * (u - Z)) + rho / 2 * np.sum((u - Z) ** 2))
    again = run(federation(), variant="paper", rho=0.35, max_rounds=7)[2]
    assert again.metric("augmented_lagrangian")[-1] == pytest.approx(np.mean(parts), rel=1e-10)
    assert again.metric("consensus")[-1] == pytest.approx(np.sqrt(np.mean(np.linalg.norm(U - Z, axis=(1, 2)) ** 2)))


def test_local_steps_and_tol_do_what_they_say():
    one = run(federation(), local_steps=1, max_rounds=10)[2].metric("loss")[-1]
    ten = run(federation(), local_steps=10, max_rounds=10)[2].metric("loss")[-1]
    assert ten < one
    rounds = [len(run(federation(), tol=tol)[2].metric("loss")) for tol in (1e-2, 1e-4, 1e-6)]
    assert rounds[0] < rounds[1] < rounds[2]
    # default: 500 visits to each site
    assert run(federation(SITES[:2]), participation=0.5, tol=1e-300)[2].stopped.kind is EndingKind.ROUNDS_USED_UP


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"variant": "Paper"}, "variant='Paper' must be one of 'corrected', 'paper'"),
        ({"rho": 0.0}, "rho=0.0 must be a finite number above 0"),
        ({"rho": np.nan}, "rho=nan"),
        ({"local_steps": 0}, "local_steps=0 must be a whole number between 1 and 10000"),
        ({"participation": 0.0}, "participation=0.0 must be a finite number above 0 and at most 1"),
        ({"participation": 1.5}, "participation=1.5"),
        ({"max_rounds": 0}, "max_rounds=0"),
        ({"tol": -1.0}, "tol=-1.0 must be a finite number above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_site_is_asked(settings, sentence):
    fed = federation()
    for protocol in (fedpe, fedpg):
        with fed.begin("test") as going, pytest.raises(InputError, match=sentence):
            protocol(going, rank=K, n_columns=D, **settings)
        assert going.record.calls == []


@both
def test_matrix_and_rows_give_the_same_result(monkeypatch, protocol):
    results = []
    for matrix in (True, False):
        monkeypatch.setattr(second_moment, "is_matrix_cheaper", lambda *_, matrix=matrix: matrix)
        results.append(run(federation(unlike_sites()), protocol, max_rounds=40, tol=1e-12)[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-10)


def test_many_columns_and_few_rows_work_from_the_rows(monkeypatch):
    monkeypatch.setattr(second_moment, "_gram", lambda site, d: pytest.fail("a matrix of all columns was made"))
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(300, 2)))[0]
    X = rng.normal(size=(60, 2)) * [9.0, 6.0] @ axes.T + 0.1 * rng.normal(size=(60, 300))
    sites = [fs.Site(name, X[i::3]) for i, name in enumerate("abc")]
    U, _ = federation(sites).run(fedpg, rank=2, n_columns=300, tol=1e-6)
    assert subspace_distance(U, leading_axes(sites, 2)) < 1e-6


def test_rows_on_disk_are_read_in_blocks(tmp_path):
    sites = []
    for site in SITES[:3]:
        np.save(tmp_path / f"{site.name}.npy", site.X)
        sites.append(fs.Site(site.name, np.load(tmp_path / f"{site.name}.npy", mmap_mode="r")))
    expected = run(federation(SITES[:3]), max_rounds=5)[0]
    np.testing.assert_array_equal(run(federation(sites), max_rounds=5)[0], expected)


@both
def test_data_without_variance_and_as_many_components_as_columns(protocol):
    zeros = [fs.Site(name, np.zeros((4, D))) for name in "ab"]
    U, _, record = run(federation(zeros), protocol)
    np.testing.assert_allclose(U.T @ U, np.eye(K), atol=1e-13)
    assert record.metric("loss")[-1] == 0.0
    U, _ = federation().run(protocol, rank=D, n_columns=D, max_rounds=20)
    np.testing.assert_allclose(U.T @ U, np.eye(D), atol=1e-12)


def test_a_site_without_rows_changes_nothing_but_the_number_of_sites():
    empty = fs.Site("empty", np.zeros((0, D)))
    U, weights, _ = run(federation([*SITES, empty]), tol=1e-8)
    assert subspace_distance(U, TRUTH) < 1e-7
    assert weights["empty"] == pytest.approx(0.1)


@given(st.integers(0, 2**20))
def test_the_augmented_lagrangian_of_a_site(seed):
    s = Setting(seed)
    assert augmented_lagrangian(s.f(s.U), s.U, s.Z, s.Y, s.rho) == pytest.approx(s.F(s.U), rel=1e-12)


def visited(kept):
    return visited_site(np.eye(3), kept)


def test_a_first_visit_starts_at_z_with_a_zero_dual():
    Z = np.array([[2.0], [0.0], [0.0]])
    for variant in ("corrected", "paper"):
        U, Y = begin_visit(visited({}), Z, variant)
        np.testing.assert_array_equal(U, [[1.0], [0.0], [0.0]])
        np.testing.assert_array_equal(Y, np.zeros((3, 1)))


def test_a_later_visit_updates_its_dual_by_the_newest_z():
    U, Y, Z = np.array([[1.0], [0.0], [0.0]]), np.array([[0.0], [1.0], [0.0]]), np.array([[0.5], [0.5], [0.0]])
    kept = {"U": U, "Y": Y, "rho": 2.0}  # of the visit before, whatever it is now
    np.testing.assert_array_equal(begin_visit(visited(kept), Z, "corrected")[1], [[1.0], [0.0], [0.0]])
    np.testing.assert_array_equal(begin_visit(visited(kept), Z, "paper")[1], Y)
    site = visited(kept)
    C = SecondMoment(lambda A, factor, V: A, trace=9.0, top=7.0)
    reply = end_visit(site, C, U, Y, 2.0)
    assert reply["message"].tolist() == [[1.0], [0.5], [0.0]]
    assert (reply["rho"], reply["top"]) == (2.0, 7.0)
    assert site.state["rho"] == 2.0
