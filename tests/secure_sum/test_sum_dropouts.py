"""Sites that leave: at any stage they cost their part and nothing else, until too few are left."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import FedspanError, InputError, QuorumError
from fedspan.federation.calls.faults import KINDS
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.secure_sum.sum_fixed_point import add
from fedspan.secure_sum.sum_masks import mask

from .players import Players, numbers_of, sites_of

STAGES = ("offer", "share", "masked", "confirm", "unmask")
SECURE = fs.Policy(secure_sum=True)


@fs.step
def counted(site, query=0):
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"calls": site.state["calls"], "x": site.X.sum(axis=0)}


@fs.transform
def halved(X):
    return X / 2


@pytest.fixture
def leaving(monkeypatch):
    """Lose the replies of some sites at some stages: ``{stage: names}``, or ``{stage: {name: times}}``."""
    plan = {}
    whole = LocalEngine.call

    def call(self, call, to, accepted, policy):
        outcomes = whole(self, call, to, accepted, policy)
        lost = plan.get(call.step.function.__name__, ())
        for name in to:
            if name in lost and (not isinstance(lost, dict) or lost[name] > 0):
                if isinstance(lost, dict):
                    lost[name] -= 1
                outcomes[name] = Failure(FailureKind.NO_REPLY, "lost")
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    return plan


def plain_sum(names):
    return fs.LocalFederation(sites_of(6)).subset(names).sum(counted)


@pytest.mark.parametrize("gone", [["s00"], ["s05"], ["s02", "s04"]])
@pytest.mark.parametrize("stage", STAGES)
def test_leaving_at_any_stage_costs_the_part_alone(leaving, stage, gone):
    fed = fs.LocalFederation(sites_of(6), policy=SECURE)
    leaving[stage] = gone
    total = fed.sum(counted)
    left = fed.sites if stage in ("confirm", "unmask") else tuple(name for name in fed.sites if name not in gone)
    assert total.sites == left  # a site that gave a masked reply is in the sum, even if it sends nothing more
    np.testing.assert_allclose(total["x"], plain_sum(left)["x"], rtol=1e-14)
    assert list(total.failed) == [name for name in gone if name not in left]
    # The sites in the sum, and no others, have kept what the step did to their state.
    leaving.clear()
    assert fed.sum(counted, query=1)["calls"] == 2 * len(left) + (6 - len(left))


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_the_call_fails_and_the_next_does_not(leaving, stage):
    fed = fs.LocalFederation(sites_of(6), policy=SECURE)
    leaving[stage] = ["s00", "s01", "s02"]
    with pytest.raises(
        QuorumError,
        match=r"3 of 6 sites answered .*, and the secure sum needs 4\. Failed: s00, s01, s02: no reply: lost",
    ):
        fed.sum(counted)
    leaving.clear()
    assert fed.sum(counted)["calls"] == 6  # no state went on


def test_a_site_that_leaves_between_two_sums_of_one_query_is_not_given_away(leaving):
    """The difference of the totals would be its part: the second one is refused before it is uncovered."""
    fed = fs.LocalFederation(sites_of(6), policy=SECURE)
    first = fed.sum(counted)
    leaving["masked"] = ["s03"]
    with pytest.raises(InputError, match=r"over 6 and over 5 sites reveal the sum over 's03' by their difference"):
        fed.sum(counted)
    assert fed.sum(counted, query=1).sites == tuple(name for name in fed.sites if name != "s03")
    leaving["masked"] = ["s03", "s04"]  # two sites are a sum
    second = fed.sum(counted)
    parts = [site.X.sum(axis=0) for site in sites_of(6) if site.name in ("s03", "s04")]
    np.testing.assert_allclose(first["x"] - second["x"], sum(parts), rtol=1e-12)


def test_different_sites_leave_at_every_stage(leaving):
    fed = fs.LocalFederation(sites_of(12), policy=SECURE)  # eight must stay
    leaving.update(offer=["s00"], share=["s03"], masked=["s07"], unmask=["s09"])
    total = fed.sum(counted)
    left = [name for name in fed.sites if name not in ("s00", "s03", "s07")]
    assert list(total.sites) == left
    expected = sum(site.X.sum(axis=0) for site in sites_of(12) if site.name in left)
    np.testing.assert_allclose(total["x"], expected, rtol=1e-13)


def test_a_lost_reply_is_asked_for_again_and_is_the_same(leaving):
    fed = fs.LocalFederation(sites_of(6), policy=SECURE)
    leaving.update({stage: {"s01": 1, "s03": 1} for stage in STAGES})
    total = fed.sum(counted)
    assert (total.sites, total.failed) == (fed.sites, {})
    np.testing.assert_allclose(total["x"], plain_sum(fed.sites)["x"], rtol=1e-14)
    assert fed.sum(counted)["calls"] == 2 * 6  # what its step did to a site's state was done once


@pytest.mark.parametrize("reached", [False, True], ids=["on its way", "on the way back"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_question_that_was_lost_is_put_once_more(monkeypatch, stage, reached, tmp_path):
    """Also the first one, which reads data through the transforms and begins the call at the site."""
    whole, lost = LocalEngine.call, []

    def call(self, call, to, accepted, policy):
        gone = {
            name for name in ("s01", "s03") if call.step.function.__name__ == stage and (name, call.number) not in lost
        }
        lost.extend((name, call.number) for name in gone)
        outcomes = whole(self, call, [name for name in to if reached or name not in gone], accepted, policy)
        return outcomes | {name: Failure(FailureKind.NO_REPLY, "lost") for name in gone}

    monkeypatch.setattr(LocalEngine, "call", call)
    fed = fs.LocalFederation(sites_of(6), policy=SECURE, run_dir=tmp_path).apply(halved)
    for number in (1, 2, 3):
        total = fed.sum(counted)
        assert (total.sites, total.failed) == (fed.sites, {})
        np.testing.assert_allclose(total["x"], plain_sum(fed.sites)["x"] / 2, rtol=1e-14)
        assert total["calls"] == 6 * number
    assert len(lost) == 6
    # The journal has what the sites whose first message was lost have kept.
    fed._root.close()
    again = fs.LocalFederation(sites_of(6), policy=SECURE, run_dir=tmp_path).apply(halved)
    assert [again.sum(counted)["calls"] for _ in range(4)] == [6, 12, 18, 24]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wire", [False, True], ids=["direct", "wire"])
def test_faults_of_every_kind(kind, wire):
    """With a seventh of the messages spoilt the total is that of the sites that are in it."""
    fed = fs.LocalFederation(sites_of(9), policy=SECURE, wire=wire)
    faulty = fed.with_faults(fs.FaultPlan(seed=2, **{kind: 0.15}))
    lost = 0
    for factor in (1.0, 2.0, 3.0, 4.0):
        total = faulty.sum(numbers_of, factor=factor)
        plain = fs.LocalFederation(sites_of(9)).subset(total.sites).sum(numbers_of, factor=factor)
        np.testing.assert_array_equal(total["count"], plain["count"])
        np.testing.assert_allclose(total["values"], plain["values"], rtol=1e-13)
        lost += len(total.failed)
    assert (lost == 0) == (kind == "duplicate")


def test_parts_of_a_call_have_faults_of_their_own():
    plan = fs.FaultPlan(seed=1, drop=0.5)
    hit = [[plan.kind(f"s{i}", 3, part) for i in range(40)] for part in range(3)]
    assert hit[0] == [plan.kind(f"s{i}", 3) for i in range(40)]
    assert hit[0] != hit[1] != hit[2]


def test_a_slow_site_is_left_behind():
    over = threading.Event()

    @fs.step
    def slow(site):
        if site.name == "s01":
            over.wait(60.0)
        return {"n": 1}

    fed = fs.LocalFederation(sites_of(6), policy=fs.Policy(deadline=3.0, secure_sum=True), n_jobs=6)
    total = fed.sum(slow)
    over.set()
    assert total["n"] == 5
    assert "late" in total.failed["s01"]


def test_two_sums_in_flight():
    """The questions of two sums come in turns: each gives its own total."""
    players = Players(5)
    sessions = {"run/0/a": 1.0, "run/1/b": 10.0}
    groups, shares, replies = {}, {}, {}
    for session, factor in sessions.items():
        groups[session] = players.group(players.offers(session=session, factor=factor), session)
    for session in sessions:
        shares[session] = players.shared(groups[session])
    for name in players.names:
        for session in sessions:
            replies[session, name] = players.masked(name, shares[session], session)
    for session, factor in sessions.items():
        totals = [np.zeros_like(replies[session, "s00"][key]) for key in ("whole", "real")]
        for name in players.names:
            for total, key in zip(totals, ("whole", "real"), strict=True):
                add(total, replies[session, name][key])
        seeds = [players.hosts[name].vault.session(session).seed for name in players.names]
        expected = [np.zeros_like(total) for total in totals]
        for name in players.names:
            for total, part in zip(expected, players.part(name, factor, session), strict=True):
                add(total, part)
        mask(totals, [], seeds)  # those of pairs have cancelled, and the sites' own are left
        for total, part in zip(totals, expected, strict=True):
            np.testing.assert_array_equal(total, part)


@pytest.mark.parametrize("gone", [[], ["s03"]], ids=["of a seed", "of a key"])
def test_wrong_shares_are_told(monkeypatch, leaving, gone):
    """A site that sends wrong shares spoils the sum, but not in silence."""
    leaving["masked"] = gone
    whole = LocalEngine.call

    def call(self, call, to, accepted, policy):
        outcomes = whole(self, call, to, accepted, policy)
        if call.step.function.__name__ == "unmask":
            delivery = outcomes["s00"]
            shares = delivery.reply["shares"].copy()
            shares[3] ^= 1
            outcomes["s00"] = delivery.written_by_attack({"shares": shares})
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    fed = fs.LocalFederation(sites_of(5), policy=SECURE)
    with pytest.raises(InputError, match=r"the shares of site 's03' do not fit|do not belong to one secret"):
        fed.sum(counted)


def test_wrong_sealed_shares_are_told():
    """A site that seals nonsense for another keeps that one from answering: it cannot be uncovered by others."""
    players = Players(5)
    _, shares = players.up_to_shares()
    shares["s04"]["sealed"] = np.zeros_like(shares["s04"]["sealed"])
    with pytest.raises(FedspanError, match="not what its sender sealed"):
        players.masked("s00", shares)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda reply: {key: np.zeros_like(value) for key, value in reply.items() if isinstance(value, np.ndarray)},
        lambda reply: {key: value.astype(float) if hasattr(value, "astype") else value for key, value in reply.items()},
        lambda reply: dict.fromkeys(reply, 3),
        lambda reply: {key: "[[1, 2]]" if isinstance(value, str) else value[:1] for key, value in reply.items()},
        lambda reply: {"form": '[["x", "f", true, [9999999999, 9999999999]]]', **dict.fromkeys(reply)},
        lambda reply: {},
        lambda reply: None,
    ],
)
def test_a_site_that_answers_nonsense(monkeypatch, stage, wrong):
    """The sum fails with a sentence or goes on without it; it is never a wrong one."""
    whole = LocalEngine.call

    def call(self, call, to, accepted, policy):
        outcomes = whole(self, call, to, accepted, policy)
        if call.step.function.__name__ == stage and "s02" in to:
            outcomes["s02"] = outcomes["s02"].written_by_attack(wrong(outcomes["s02"].reply))
        return outcomes

    monkeypatch.setattr(LocalEngine, "call", call)
    with suppress(QuorumError, InputError):
        total = fs.LocalFederation(sites_of(5), policy=SECURE).sum(counted)
        expected = sum(site.X.sum(axis=0) for site in sites_of(5) if site.name in total.sites)
        np.testing.assert_allclose(total["x"], expected, rtol=1e-13)
