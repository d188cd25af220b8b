"""FedPE and FedPG when sites miss rounds, come late or go offline for good."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.federation import EndingKind
from fedspan.linalg import polar_factor, subspace_distance
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg
from fedspan.pca.parts.consensus import MISSES

from .consensus_sites import SITES, TRUTH, D, absent, federation, leading_axes, loss, run

both = pytest.mark.parametrize("protocol", [fedpe, fedpg], ids=["fedpe", "fedpg"])


@pytest.mark.parametrize("drop", [0.1, 0.25])
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_replies_that_get_lost_only_cost_time(drop, participation):
    fed = federation(policy=fs.Policy(quorum=1)).with_faults(fs.FaultPlan(seed=4, drop=drop))
    U, _, record = run(fed, participation=participation, tol=1e-6)
    assert record.stopped.kind is EndingKind.CONVERGED
    assert len(record.failures) > 20
    assert subspace_distance(U, TRUTH) < 1e-5


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_sites_that_drop_out_for_good_leave_the_result_to_the_others(participation):
    gone = ["s03", "s07", "s08"]
    fed = absent(federation(), gone, lambda number: number > 12)
    U, weights, record = run(fed, participation=participation, tol=1e-7)
    there = [site for site in SITES if site.name not in gone]
    assert record.stopped.kind is EndingKind.CONVERGED
    assert tuple(weights) == tuple(site.name for site in there)
    assert subspace_distance(U, leading_axes(there)) < 1e-6
    assert subspace_distance(U, TRUTH) > 0.01
    assert record.metric("loss")[-1] == pytest.approx(loss(there, U))  # per row of those that are there


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_sites_that_come_late_are_in_the_result(participation):
    late = ["s00", "s07", "s08"]
    fed = absent(federation(), late, lambda number: number < 15)  # they miss the request for eigenvalues, too
    U, weights, record = run(fed, participation=participation, tol=1e-7)
    assert record.stopped.kind is EndingKind.CONVERGED
    assert tuple(weights) == federation().sites
    assert subspace_distance(U, TRUTH) < 1e-6


def test_sites_that_return_count_again():
    away = ["s02", "s08"]
    fed = absent(federation(), away, lambda number: 8 < number < 8 + 2 * MISSES)
    U, weights, record = run(fed, tol=1e-7)
    assert len(weights) == 9
    assert subspace_distance(U, TRUTH) < 1e-6
    # in between they were really out
    at = run(fed, max_rounds=8 + MISSES)[1]
    assert not set(away) & set(at)
    assert len(record.failures) == 2 * (2 * MISSES - 1)


def test_a_run_does_not_stop_before_every_site_has_answered():
    """Two sites are alike and one, which answers last, is not: the first two agree at once."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, D)) * np.arange(D, 0, -1.0)
    sites = [fs.Site("a", X), fs.Site("b", X), fs.Site("c", X[:, ::-1])]
    fed = absent(federation(sites), ["c"], lambda number: number < MISSES)
    _, weights, record = run(fed, tol=0.5)
    assert tuple(weights) == ("a", "b", "c")
    assert len(record.metric("loss")) >= MISSES


def test_too_few_sites_end_the_run_and_an_offline_sample_does_not():
    half = ["s00", "s01", "s02", "s03"]
    fed = absent(federation(), half, lambda number: number > 5)
    U, weights, record = run(fed, participation=0.12, max_rounds=400, tol=1e-7)  # one site a round
    assert any(not call.answered for call in record.calls)
    assert not set(half) & set(weights)
    there = [site for site in SITES if site.name not in half]
    assert subspace_distance(U, leading_axes(there)) < 1e-2
    for participation in (1.0, 0.12):
        fed = absent(federation(), [*half, "s04"], lambda number: number > 5)
        with pytest.raises(QuorumError, match="answered step"):
            run(fed, participation=participation, max_rounds=400)


def test_as_written_goes_on_when_sites_miss_calls():
    fed = federation(policy=fs.Policy(quorum=1)).with_faults(fs.FaultPlan(seed=2, drop=0.3))
    for protocol in (fedpe, fedpg):
        U, _, record = run(fed, protocol, variant="paper", rho=1.0, participation=0.4, max_rounds=40)
        assert np.isfinite(U).all()
        assert record.stopped.kind is EndingKind.ROUNDS_USED_UP
        assert record.failures


@both
def test_a_run_with_late_and_lost_sites_resumes_to_the_same_bytes(tmp_path, protocol):
    def fed(folder=None, wire=False):
        policy = fs.Policy(quorum=2)
        faulty = federation(policy=policy, run_dir=folder, wire=wire).with_faults(fs.FaultPlan(seed=4, drop=0.1))
        return absent(absent(faulty, ["s01"], late_until_nine), ["s05", "s06"], gone_after_six)

    settings = {"participation": 0.5, "max_rounds": 2 * MISSES + 20, "local_steps": 2}
    expected, weights, _ = run(fed(), protocol, **settings)
    assert "s01" in weights
    assert not {"s05", "s06"} & set(weights)
    run(fed(tmp_path), protocol, **settings)
    journal = tmp_path / "run-000" / "journal"
    whole = journal.read_bytes()
    for part in (0.1, 0.4, 0.9):
        journal.write_bytes(whole[: int(part * len(whole))])
        U, again, record = run(fed(tmp_path, wire=part == 0.4), protocol, **settings)
        assert U.tobytes() == expected.tobytes()
        assert again == weights
        assert 0 < sum(call.replayed for call in record.calls) < len(record.calls)


def late_until_nine(number):
    return number < 9


def gone_after_six(number):
    return number > 6


@pytest.mark.parametrize("site", ["3", "6"])
def test_a_site_whose_replies_are_lost_for_a_while_comes_back_and_breaks_nothing(site):
    X = load_breast_cancer().data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    labels = np.empty(len(X), dtype=int)
    labels[np.argsort(X[:, 0])] = np.arange(len(X)) * 10 // len(X)  # sites that differ

    def lost(replies, bad, rng, call):
        return {s: {"lost": np.nan} if 1 <= call.number < 56 else replies[s] for s in bad}

    fed = fs.federate(X, sites=labels).corrupt(lost, sites=[site])
    U = polar_factor(fed.run(fedpe, rank=2, n_columns=30, max_rounds=150)[0])
    best = np.linalg.eigvalsh(X.T @ X / len(X))[-2:].sum()
    assert best - np.sum((X @ U) ** 2) / len(X) < 1e-3
