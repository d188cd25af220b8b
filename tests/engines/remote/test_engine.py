"""The coordinator's side: who is asked, what is believed, who is away and who is back."""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np
import pytest
from fedspan.federation.journal_reading import read_journal
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.attacks import SignFlip
from fedspan.engines.remote.coordinator import presence
from fedspan.engines.remote.coordinator import site_directory as meeting
from fedspan.engines.remote.coordinator.presence import Presence
from fedspan.engines.remote.messages import environment as about
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.engines.remote.messages.serials import Serials
from fedspan.engines.remote.site import site_worker as worker
from fedspan.engines.remote.site.run_file import RunFile
from fedspan.errors import DeadlineError, InputError, PolicyError, QuorumError
from fedspan.federation.run import Observer
from fedspan.wire import decode, encode

from .network import Network, three_sites
from .people import authority, identity, user
from .steps import broken, count, objecting, odd, walk, wander

ALL = fs.Policy(quorum="all", run_deadline=60.0)


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


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
    assert all(not entry.changes for entry in entries)


def test_runs_have_names_that_nobody_else_has(net):
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


def test_what_a_site_says_goes_into_the_failure_without_data(net):
    with net.federation() as fed:
        with pytest.raises(QuorumError, match="raised RuntimeError, whose text stays at the site") as caught:
            fed.ask(broken)
        assert "row" not in str(caught.value)
        with pytest.raises(QuorumError, match="raised InputError: this table has no column of numbers") as caught:
            fed.ask(objecting)
        assert isinstance(caught.value.__cause__, InputError)


@pytest.mark.parametrize(
    ("what", "reason"),
    [("nan", "non-finite: 'value'"), ("shape", "misshapen: 'value'"), ("size", "refused: oversize: the reply has")],
)
def test_bad_replies_are_refused_with_the_reason(net, what, reason):
    with net.federation(fs.Policy(max_bytes=100_000)) as fed:
        replies = fed.ask(odd, what=what, where="b")
        assert list(replies) == ["a", "c"]
        assert replies.failed["b"].startswith(reason)


def test_a_site_that_sends_more_than_is_allowed_is_not_read(net, monkeypatch):
    monkeypatch.setattr(
        worker.SiteWorker,
        "_reply",
        lambda self, ask, delivery, most: (
            {"kind": "reply", "rows": 1},
            {"reply": encode({"value": np.zeros(300_000)})},
        ),
    )
    with net.federation(fs.Policy(max_bytes=100_000)) as fed, pytest.raises(QuorumError, match="oversize: the message"):
        fed.ask(odd, what="", where="")


def test_a_tampered_answer_is_not_believed(net):
    def meddle(site, what, data):
        if what == "request" or site != "b":
            return data
        outer = decode(data)
        if "part reply" not in outer:
            return data
        changed = outer["part reply"].copy()
        changed[-1] ^= 1
        return encode({**outer, "part reply": changed})

    net.meddle = meddle
    with net.federation() as fed:
        assert fed.ask(count).failed == {"b": "refused: the message's 'reply' is not the one that was signed"}


def test_a_tampered_request_is_refused_by_the_site(net):
    def meddle(site, what, data):
        outer = decode(data)
        if what == "answer" or site != "b" or "part payload" not in outer:
            return data
        return encode({**outer, "part payload": np.frombuffer(encode({"pull": 9.0}), dtype=np.uint8)})

    net.meddle = meddle
    with net.federation() as fed:
        failed = fed.ask(walk, pull=0.5).failed
        assert failed == {"b": "refused: the message's 'payload' is not the one that was signed"}


def test_answers_to_other_requests_and_of_other_sites_are_refused(net):
    kept = {}

    def meddle(site, what, data):
        if what == "request":
            return data
        kept[site] = [*kept.get(site, []), data]
        return {"a": kept["a"][-1], "b": kept.get("b", [b""])[0], "c": kept["a"][-1]}[site]

    with net.federation(fs.Policy(quorum=1)) as fed:
        fed.ask(count)
        net.meddle = meddle
        fed.ask(count)
        failed = fed.ask(count).failed
        assert failed["b"] == "refused: stale: the answer is to another request"
        assert failed["c"] == "refused: the answer is signed by 'a', not by 'c'"


def test_a_message_of_another_run_is_refused(net):
    """The server keeps what it has seen and hands it to the sites again later, in another run."""
    net.keep_requests = True
    fed = net.federation()
    fed.run(wander, rounds=1)
    old = dict(net.requests[1])
    net.meddle = lambda site, what, data: old.get(site, data) if what == "request" else data
    with pytest.raises(QuorumError, match="stale: the answer is to another request"):
        fed.sum(count)


def test_a_clock_that_was_set_back_is_no_obstacle(net, monkeypatch, tmp_path):
    with net.federation() as fed:
        fed.ask(count)
        fed.engine._post._serials = Serials()
        earlier = time.time_ns() - 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: earlier)
        assert fed.sum(count)["n"] == 21
        assert fed.sum(count)["n"] == 21


def altered(net, liar, change):
    """Let a site's answers to calls be what it signs after `change`, which gets and returns the head."""

    def meddle(site, what, data):
        outer = decode(data)
        head = decode(outer["head"].tobytes())
        if what == "request" or site != liar or head["kind"] == "about":
            return data
        parts = {name[5:]: part.tobytes() for name, part in outer.items() if name.startswith("part ")}
        return Sealed(identity(liar), "response", change(head), parts).to("")

    net.meddle = meddle


def test_a_lie_about_what_was_seen_costs_the_liar_alone(net, tmp_path):
    """It claims the greatest number that is believed; the others are sent none of its numbers, also when resumed."""
    lies = []

    def lie(head):
        lies.append(head)
        stale = {"kind": "refused", "why": "stale", "error": "StaleError", "again": False, "seen": 2**62 - 1}
        return {**head, **stale} if len(lies) == 1 else head

    policy = fs.Policy(quorum=2, run_deadline=60.0)
    for rounds in (1, 3):  # the second goes on with the first, in a process that knows nothing of it
        lies.clear()
        altered(net, "b", lie)
        fed = net.federation(policy, tmp_path / "run")
        with suppress(KeyboardInterrupt), fed.begin("two sums") as run:
            replies = [run.ask(walk, pull=0.1) for _ in range(rounds)]
            assert all({"a", "c"} <= set(one) for one in replies)
            files = [next((net.folder / site).glob("*.run")) for site in "ac"]
            assert all(RunFile(file).serial <= time.time_ns() for file in files)
            if rounds == 1:
                raise KeyboardInterrupt
    assert "b" in replies[-1]


def test_sites_count_for_themselves():
    serials = Serials()
    first = serials.next("ab")
    assert first["a"] == first["b"]
    assert not serials.catch_up("a", first["a"] - 1)
    assert not any(serials.catch_up("a", odd) for odd in (True, 2.0**61, "9", None, 2**62, -1))
    assert serials.catch_up("a", 2**61)
    second = serials.next("ab")
    assert second["a"] == 2**61 + 1
    assert first["b"] < second["b"] <= time.time_ns()
    assert serials.next("ab")["a"] == 2**61 + 2


@pytest.mark.parametrize("rows", [-1, 2**62, True, 3.0, float("nan"), "7", None])
def test_a_number_of_rows_that_no_table_has_is_not_believed(net, rows):
    altered(net, "b", lambda head: {**head, "rows": rows})
    with net.federation() as fed:
        replies = fed.ask(count)
    assert set(replies) == {"a", "c"}
    assert "as its number of rows" in replies.failed["b"]


def test_a_site_that_is_away_costs_one_attempt_and_comes_back(net):
    seen = []
    with net.federation() as fed:
        fed.ask(walk, pull=0.1)
        net.lose = lambda site, what: site == "c"
        fed.ask(walk, pull=0.1)
        net.lose = lambda site, what: seen.append(site) or False
        net.stop("c")
        for _ in range(3):
            fed.ask(walk, pull=0.1)
        assert "c" not in seen
        net.start("c")
        replies = fed.ask(walk, pull=0.1)
        # It has missed calls 1 to 4, and goes on from its own disk.
        assert {site: reply["steps"] for site, reply in replies.items()} == {"a": 6, "b": 6, "c": 2}
        assert fed.record.absences == ["site c was away in calls 1 to 4, and there again in call 5"]
        assert "site c was away in calls 1 to 4, and there again in call 5" in fed.record.summary()
        assert fed.record.calls[2].failed["c"] == "away: no answer within the deadline"


def test_a_site_that_hangs_is_looked_for_now_and_then_only(net, monkeypatch):
    """It seems to be connected, and does not answer: asking for it takes a tenth of the time, and no deadline each."""
    clock = [0.0]
    monkeypatch.setattr(presence, "monotonic", lambda: clock[0])

    def lose(site, what):
        clock[0] += 2.0 if site == "c" else 0.0
        return site == "c"

    with net.federation() as fed:
        fed.ask(count)
        net.lose = lose
        for _ in range(100):
            fed.ask(count)
            clock[0] += 1.0
        asked = [sites for sites in net.sends[2:] if "c" in sites]
        assert asked == [("a", "b", "c")] + [("c",)] * 6  # the call itself, then a short question every 20 s
        net.lose = lambda site, what: False
        clock[0] += 20.0
        assert "c" in fed.ask(count)


def test_with_a_quorum_of_all_a_site_is_waited_for(net):
    class Restarts(Observer):
        waited = ()

        def waiting(self, sites):
            self.waited += sites
            net.start("b")

    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    fed = net.federation(ALL)
    observer = Restarts()
    fed.observe(observer)
    sends = [0]

    def after():
        sends[0] += 1
        if sends[0] == 4:
            net.stop("b")

    net.after_send = after
    np.testing.assert_array_equal(fed.run(wander), expected)
    assert observer.waited == ("b",)


def test_a_run_waits_until_its_deadline_and_can_be_resumed(net, tmp_path, monkeypatch):
    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    whole, left = Presence.wait, []
    monkeypatch.setattr(Presence, "wait", lambda self, sites, s: left.append(s) or whole(self, sites, s / 600))
    net.after_send = lambda: len(net.sends) == 5 and net.stop("b")
    with pytest.raises(QuorumError, match="b: away: the site is not connected"):
        net.federation(ALL, tmp_path / "run").run(wander)
    assert 0 < left[0] < ALL.run_deadline
    net.start("b")
    np.testing.assert_array_equal(net.federation(ALL, tmp_path / "run").run(wander), expected)


def test_nobody_is_waited_for_where_that_would_not_help(net):
    """One site is away and another has failed: with a quorum of all the run is over at once."""
    fed = net.federation(fs.Policy(quorum="all", run_deadline=1000.0, max_bytes=100_000))
    fed.ask(count)
    net.stop("c")
    with pytest.raises(QuorumError, match=r"oversize.*away: the site is not connected"):
        fed.ask(odd, what="size", where="b")


WHATEVER = st.one_of(
    st.none(), st.integers(-5, 5), st.floats(), st.text(max_size=5), st.just("[" * 100_000), st.just(np.zeros(3))
)


@settings(max_examples=40)
@given(
    head=st.dictionaries(
        st.sampled_from(
            ["kind", "run", "number", "part", "rows", "why", "error", "again", "seen", "instance", "parts"]
        ),
        WHATEVER,
    ),
    kind=st.sampled_from(["reply", "refused", "failed", "about", "done"]),
    parts=st.dictionaries(st.sampled_from(["reply", "about", "introduction"]), st.binary(max_size=20)),
)
def test_whatever_a_site_says_the_coordinator_goes_on(head, kind, parts, tmp_path_factory):
    """A site with a good certificate and bad intentions."""
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

    def steps(gone_by):
        fed = (
            net.federation(ALL, folder) if remote else fs.LocalFederation(three_sites(), 1, policy=ALL, run_dir=folder)
        )
        with fed.begin("two sums") as run:
            run.sum(walk, pull=0.1)
            run._run.began -= gone_by
            return run.sum(walk, pull=0.1)["steps"]

    with pytest.raises(DeadlineError, match=r"run_deadline=60 s and stops before call 1"):
        steps(100.0)
    assert steps(0.0) == 6


def test_another_version_at_a_site_is_said(net, monkeypatch):
    told = about.fedspan_version()
    monkeypatch.setattr(meeting, "fedspan_version", lambda: "9.9")
    with net.federation() as fed, pytest.raises(QuorumError) as caught:
        fed.ask(count)
    assert f"refused: site 'a' runs fedspan {told}, and this is fedspan 9.9: use one version" in str(caught.value)
    assert all(len(f.read_bytes()) == 0 for s in net.sites for f in (net.folder / s).glob("*.run"))


def test_other_libraries_are_warned_about_once(net, monkeypatch):
    monkeypatch.setattr(worker, "environment", lambda: {**about.environment(), "numpy": "1.0"})
    fed = net.federation()
    with pytest.warns(UserWarning, match=r"site '.' has numpy 1\.0 \(here .*\): the last bits of results may") as w:
        [fed.run(wander, rounds=1) for _ in range(2)]
    assert len(w) == 3
    assert fed.sum(count)["n"] == 21
    fed.close()


def test_what_the_sites_are_can_be_asked(net):
    net.stop("b")
    with net.federation() as fed:
        told = fed.engine.about()
        assert list(told) == ["a", "c"]
        assert fed.engine.silent == {"b": "the site is not connected"}
        assert told["a"].fingerprint.startswith("6x3 float64 #")
        assert "tests.engines.remote.steps.walk" in told["a"].steps
        net.start("b")
        assert list(fed.engine.about(afresh=True)) == ["a", "b", "c"]
        assert fed.engine.silent == {}
        net.meddle = lambda site, what, data: b"?" + data[1:] if (site, what) == ("a", "request") else data
        assert list(fed.engine.about(afresh=True)) == ["b", "c"]
        assert "a" in fed.engine.silent


def test_a_site_is_no_user(net):
    with pytest.raises(InputError, match="'a' is no user"):
        net.federation(who=identity("a"))
    with net.federation(who=user("mia", "member")) as fed, pytest.raises(QuorumError, match="the role 'member'"):
        fed.ask(count)


def test_a_root_of_another_federation_is_refused(net):
    from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation

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
