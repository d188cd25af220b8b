"""A federation of remote sites: what a protocol gets, and what a malicious site can't do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.attacks import SignFlip
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.errors import DeadlineError, InputError, PolicyError, QuorumError
from fedspan.federation.journal import read_journal
from fedspan.federation.outcomes import FailureKind
from fedspan.wire import decode

from .network import Network, three_sites
from .people import authority, identity, user
from .steps import broken, count, objecting, odd, walk, wander
from .test_signed_requests import altered

ALL = fs.Policy(quorum="all", run_deadline=60.0)


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


class Answered(bytes):
    """An answer, which counts those that are still in memory."""

    live = most = 0

    def __new__(cls, data):
        cls.live += 1
        cls.most = max(cls.most, cls.live)
        return super().__new__(cls, data)

    def __del__(self):
        type(self).live -= 1


def as_they_come(net, order):
    """Let a network pass answers on one by one in this order, each made only when the one before it was taken."""

    def send(requests, deadline):
        for name in (name for name in order if name in requests):
            answer = net.workers[name].answer(requests[name])
            yield name, Answered(answer)

    net.send = send


@fs.step("tests.wide_sum", reveals="sums", merge=lambda replies: {"values": sum(one["values"] for one in replies)})
def wide(site):
    return {"values": site.X[0, 0] * np.full(600_000, 0.1)}  # more than are added up at a time


@pytest.mark.parametrize("how", ["sum", "mean", "merge"])
def test_replies_are_added_as_they_come(how, tmp_path):
    """In the order of the names, which decides the last bits; only those that come early wait."""
    names = [f"{i:02d}" for i in range(10)]
    sites = [fs.Site(name, np.random.default_rng(i).normal(size=(4, 2))) for i, name in enumerate(names)]
    expected = getattr(fs.LocalFederation(sites), how)(wide)["values"].tobytes()
    for order, most in ((names, 2), ([*names[1:3], names[0], *names[3:]], 3)):
        net = Network(sites, tmp_path / str(most))
        as_they_come(net, order)
        with net.federation() as fed:
            fed.ask(count)
            Answered.live = Answered.most = 0
            assert getattr(fed, how)(wide)["values"].tobytes() == expected
            assert Answered.most <= most
            assert set(getattr(fed, how)(wide).sites) == set(names)
        net.close()


def test_a_total_over_the_sites_that_answer_is_that_of_the_embedded_engine(tmp_path):
    names = [f"{i:02d}" for i in range(6)]
    sites = [fs.Site(name, np.random.default_rng(i).normal(size=(4, 2))) for i, name in enumerate(names)]
    net = Network(sites, tmp_path)
    expected = fs.LocalFederation([site for site in sites if site.name != "03"]).sum(wide)["values"].tobytes()
    with net.federation(fs.Policy(quorum=4)) as fed:
        fed.ask(count)
        net.stop("03")
        found = fed.sum(wide)
        assert found["values"].tobytes() == expected
        assert found.sites == tuple(name for name in names if name != "03")
        assert fed.sum(wide).sites == found.sites
    net.close()


def test_calls_carry_values_both_ways(net):
    with net.federation() as fed:
        assert fed.sites == ("a", "b", "c")
        assert fed.sum(count)["n"] == 21
        assert fed.ask(walk, ["b"], pull=0.5)["b"]["steps"] == 1


def test_no_state_leaves_the_sites(net, tmp_path):
    with net.federation(run_dir=tmp_path / "run") as fed:
        fed.run(wander)
    head, entries = read_journal(tmp_path / "run" / "run-000" / "journal")
    assert len(head["token"]) == 32
    assert all(not entry.collected.changes for entry in entries)


def test_runs_have_unique_names(net):
    one, other = net.federation(), net.federation()
    names = set()
    for fed in (one, other):
        fed.run(wander, rounds=1)
        fed.sum(count)
        names.add(fed._run.id)
    assert len(names) == 2
    assert all(name.startswith("protocol#1 ") for name in names)


def test_sites_forget_a_run_when_it_is_over(net):
    fed = net.federation()
    fed.run(wander)
    assert all(sum(f.stat().st_size for f in (net.folder / s).glob("*.run")) < 1000 for s in net.sites)


def test_a_failure_has_the_sites_sentence_and_no_data(net):
    with net.federation() as fed:
        with pytest.raises(QuorumError, match="raised RuntimeError, whose text stays at the site") as caught:
            fed.ask(broken)
        assert "row" not in str(caught.value)
        with pytest.raises(QuorumError, match="step failed: this table has no column of numbers"):
            fed.ask(objecting)


@pytest.mark.parametrize(
    ("what", "reason"),
    [("nan", "non-finite: 'value'"), ("shape", "misshapen: 'value'"), ("size", "oversize: the reply has")],
)
def test_bad_replies_are_refused_with_the_reason(net, what, reason):
    with net.federation(fs.Policy(max_bytes=100_000)) as fed:
        replies = fed.ask(odd, what=what, where="b")
        assert list(replies) == ["a", "c"]
        assert replies.failed["b"].startswith(reason)


@pytest.mark.parametrize("rows", [-2, 2**62, True, 3.0, float("nan"), "7", None])
def test_a_number_of_rows_that_no_table_has_is_refused(net, rows):
    altered(net, "b", lambda head: {**head, "rows": rows})
    with net.federation() as fed:
        replies = fed.ask(count)
    assert set(replies) == {"a", "c"}
    assert replies.failed["b"].kind is FailureKind.MALFORMED
    assert "the answer's number of rows must be" in replies.failed["b"]


WHATEVER = st.one_of(
    st.none(), st.integers(-5, 5), st.floats(), st.text(max_size=5), st.just("[" * 100_000), st.just(np.zeros(3))
)


@settings(max_examples=40)
@given(
    head=st.dictionaries(
        st.sampled_from(
            ["kind", "run", "number", "part", "rows", "why", "failure", "facts", "again", "seen", "instance", "parts"]
        ),
        WHATEVER,
    ),
    kind=st.sampled_from(["reply", "refused", "failed", "about", "done"]),
    parts=st.dictionaries(st.sampled_from(["reply", "about", "key", "owner"]), st.binary(max_size=20)),
)
def test_the_coordinator_continues_whatever_a_site_answers(head, kind, parts, tmp_path_factory):
    """A malicious site has a valid certificate."""
    net = Network(three_sites(), tmp_path_factory.mktemp("sites"))

    def meddle(site, what, data):
        if what == "request" or site != "b":
            return data
        true = decode(decode(data)["head"].tobytes())
        return Sealed(identity("b"), "response", {**true, "kind": kind, **head}, parts).to("")

    net.meddle = meddle
    with net.federation() as fed:
        replies = fed.ask(count)
        assert {"a", "c"} <= set(replies)
        assert "b" not in replies or replies["b"].keys() == {"n"}
        assert fed.sum(count)["n"] >= 14


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_stops_at_its_deadline(net, tmp_path, remote):
    folder = tmp_path / "run"

    def steps(elapsed):
        fed = (
            net.federation(ALL, folder) if remote else fs.LocalFederation(three_sites(), 1, policy=ALL, run_dir=folder)
        )
        with fed.begin("two sums") as run:
            run.sum(walk, pull=0.1)
            run._run.began -= elapsed
            return run.sum(walk, pull=0.1)["steps"]

    with pytest.raises(DeadlineError, match=r"run_deadline=60 s and stops before call 1"):
        steps(100.0)
    assert steps(0.0) == 6


def test_a_site_is_no_user(net):
    with pytest.raises(InputError, match="'a' is not a user"):
        net.federation(who=identity("a"))
    with net.federation(who=user("mia", "viewer")) as fed, pytest.raises(QuorumError, match="the role 'viewer'"):
        fed.ask(count)


def test_a_root_of_another_federation_is_refused(net):
    fed = RemoteFederation(net, user(), authority(net.sites, "banks"))
    with pytest.raises(QuorumError, match="of another federation"):
        fed.ask(count)


def test_attacks_and_faults_act_on_what_arrives(net):
    def protocol(fed):
        return [fed.ask(walk, pull=0.5).stack("position") for _ in range(3)]

    def harmed(fed):
        plan = fs.FaultPlan(seed=2, duplicate=0.5, drop=0.1)
        return fed.corrupt(SignFlip(), ["b"]).with_faults(plan).run(protocol)

    policy = fs.Policy(quorum=1)
    expected = harmed(fs.LocalFederation(three_sites(), seed=1, policy=policy))
    for one, other in zip(harmed(net.federation(policy)), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_transforms_travel(net):
    scaler = fs.FedStandardScaler().fit(net.federation())
    embedded = fs.LocalFederation(three_sites())
    for one, other in ((scaler, fs.FedStandardScaler().fit(embedded)),):
        np.testing.assert_array_equal(one.scale_, other.scale_)
    far = scaler.transform(net.federation()).ask(walk, pull=1.0)
    near = scaler.transform(fs.LocalFederation(three_sites(), seed=1)).ask(walk, pull=1.0)
    np.testing.assert_array_equal(far.stack("position"), near.stack("position"))


def test_secure_sums_need_several_sites(tmp_path):
    alone = Network(three_sites()[:1], tmp_path)
    with pytest.raises(PolicyError, match="over 1 site"):
        alone.federation(fs.Policy(secure_sum=True))
