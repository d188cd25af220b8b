"""Federations: what a protocol can request, and what comes back."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import (
    DeadlineError,
    FedspanError,
    InputError,
    MessageError,
    QuorumError,
)
from fedspan.federation.outcomes import Failure, FailureKind

from .conftest import count, make_sites


@fs.step
def echo(site, **payload):
    return {key: value for key, value in payload.items() if value is not None}


@fs.step
def mean_of_rows(site):
    return {"mean": site.X.mean(axis=0), "n": len(site)}


@fs.step
def spoil_payload(site, x):
    x[0] = 99.0
    return {}


@fs.step
def spoil_data(site):
    site.X[0] = 99.0
    return {}


def test_ask_returns_every_reply_in_name_order(fed):
    replies = fed.ask(mean_of_rows)
    assert list(replies.ok) == list(replies) == list(fed.sites) == [f"s{i}" for i in range(7)]
    assert replies.failed == {}
    assert replies.stack("mean").shape == (7, 3)
    np.testing.assert_array_equal(replies["s3"]["mean"], make_sites()[3].X.mean(axis=0))
    assert replies.stack("n").tolist() == [4 + i for i in range(7)]


def test_gather_is_ask(fed):
    assert fed.gather(count).stack("n").tolist() == fed.ask(count).stack("n").tolist()


def test_ask_some_sites(fed):
    assert list(fed.ask(count, ["s5", "s1"]).ok) == ["s1", "s5"]
    assert list(fed.subset(["s2"]).ask(count).ok) == ["s2"]
    with pytest.raises(InputError, match="no site named 's99'"):
        fed.ask(count, ["s99"])


def test_a_refusal_names_the_first_unknown_site(fed):
    with pytest.raises(InputError, match=r"^no site named 'xa' is in this federation of s0, s1"):
        fed.ask(count, ["xb", "s1", "xa"])
    with pytest.raises(InputError, match="no site was named, and one must be"):
        fed.ask(count, [])


def test_what_may_not_travel_is_refused_at_the_sender(fed):
    with pytest.raises(MessageError, match="payload key 'weights' holds a list"):
        fed.ask(echo, weights=[1.0])


def test_payloads_arrive_as_they_were(fed):
    sent = {"a": np.arange(6).reshape(2, 3).T, "b": 2.5, "c": "text", "d": np.array(["x", "yz"]), "e": 1j, "f": True}
    received = fed.ask(echo, **sent)["s0"]
    for key, value in sent.items():
        np.testing.assert_array_equal(received[key], value)
        assert np.asarray(received[key]).dtype == np.asarray(value).dtype
    assert received["a"].flags.c_contiguous


@pytest.mark.parametrize("step", [spoil_payload, spoil_data])
def test_neither_payload_nor_data_can_be_changed_at_a_site(fed, step):
    x = np.zeros(3)
    with pytest.raises(FedspanError, match="read-only"):
        fed.ask(step, **({"x": x} if step is spoil_payload else {}))
    assert x[0] == 0.0


def test_sample_draws_from_the_run_and_keeps_at_least_one(fed):
    assert len(fed.sample(1e-9).sites) == 1
    assert len(fed.sample(0.5).sites) == 4
    assert fed.sample(1.0).sites == fed.sites
    drawn = {fed.sample(0.3).sites for _ in range(50)}
    assert len(drawn) > 10
    for fraction in (0.0, 1.5, -1):
        with pytest.raises(InputError, match="fraction"):
            fed.sample(fraction)


def test_a_payload_that_is_too_large_is_refused_before_it_is_sent(wire):
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(max_bytes=1000))

    @fs.step
    def take(site, x):
        return {}

    with pytest.raises(fs.errors.MessageError, match="more than the 1000 allowed"):
        fed.ask(take, x=np.zeros(1000))
    assert fed.record.calls == []


def test_below_the_quorum_the_run_stops_and_says_who_failed_and_why(fed):
    @fs.step
    def most_fail(site):
        if site.name != "s0":
            raise OSError("disk full")
        return {"n": 1}

    with pytest.raises(
        QuorumError, match=r"1 of 7 sites answered .*quorum needs 4.*s1, s2, s3, s4, s5, s6: .*OSError: disk full"
    ) as caught:
        fed.ask(most_fail)
    assert sorted(caught.value.failed) == [f"s{i}" for i in range(1, 7)]
    assert isinstance(caught.value.__cause__, OSError)


def test_a_reply_that_the_protocol_rejects_is_a_failed_site(tmp_path):
    def check(reply):
        if reply["n"] > 9:
            raise fs.errors.InputError("too many")
        return {"n": 10 * reply["n"]}

    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    with fed.begin("test") as run:
        accepted = run.accept(run.ask(count), check)
        assert accepted.stack("n").tolist() == [40, 50, 60, 70, 80, 90]
        assert accepted.failed == {"s6": "rejected: too many"}
        assert accepted.failed["s6"].kind is FailureKind.REJECTED
        assert run.record.calls[0].failed == accepted.failed
        assert run.record.calls[0].answered == tuple(accepted.ok)
        assert run.accept(run.ask(count), lambda reply: reply).failed == {}
        run.accept(run.ask(count), check)
        assert [sorted(call.failed) for call in run.record.calls] == [["s6"], [], ["s6"]]
    lines = (tmp_path / "run-000" / "record.jsonl").read_text().splitlines()
    assert fs.RunRecord.from_lines(lines) == run.record

    def refuse(reply):
        raise fs.errors.InputError("no")

    with pytest.raises(
        fs.errors.QuorumError, match=r"0 of 7 sites answered .*s0, s1, s2, s3, s4, s5, s6: rejected: no"
    ):
        fed.accept(fed.ask(count), refuse)


class SometimesOffline:
    """An engine some of whose sites are offline for a while."""

    def __init__(self, engine, times):
        self.call_them, self.times, self.waited, self.asked = engine.call, dict(times), [], []
        engine.call, engine.wait = self.call, self.wait

    def call(self, call, to, accepted, policy):
        self.asked.append(tuple(to))
        offline = [site for site in to if self.times.get(site, 0) > 0]
        for site in offline:
            self.times[site] -= 1
        there = self.call_them(call, [site for site in to if site not in offline], accepted, policy)
        return there | {site: Failure(FailureKind.OFFLINE, "no power") for site in offline}

    def wait(self, sites, seconds):
        self.waited.append(tuple(sites))
        return 0 < seconds <= 86400.0 and len(self.waited) < 5


def test_offline_sites_are_requested_again_where_the_quorum_needs_them(fed):
    engine = SometimesOffline(fed._root.engine, {"s0": 1, "s1": 2, "s2": 2, "s3": 2})
    replies = fed.ask(count)
    # Four of seven are needed, and three answered: then s0 is back, and that is enough.
    assert list(replies.ok) == ["s0", "s4", "s5", "s6"]
    assert replies.failed == dict.fromkeys(("s1", "s2", "s3"), "offline: no power")
    assert engine.asked == [fed.sites, ("s0", "s1", "s2", "s3")]
    assert engine.waited == [("s0", "s1", "s2", "s3")]
    assert fed.sum(count)["n"] == 49  # with all of them online


def test_offline_sites_are_not_waited_for_without_need_nor_in_vain(fed):
    engine = SometimesOffline(fed._root.engine, {"s0": 1, "s1": 1, "s2": 1})
    assert len(fed.ask(count).ok) == 4  # just enough
    engine.times = dict.fromkeys(fed.sites, 99)
    with pytest.raises(fs.errors.QuorumError, match="0 of 7 sites answered"):
        fed.ask(count)
    assert len(engine.waited) == 5  # until the engine stops waiting


def test_calls_on_the_federation_itself_have_the_whole_deadline_each():
    fed = fs.LocalFederation(make_sites(), policy=fs.Policy(run_deadline=1000.0))
    for _ in range(2):
        assert fed.sum(count)["n"] == 49
        fed._run.began -= 2000.0  # the time that has gone by
    with fed.begin("slow") as run:
        run.sum(count)
        run._run.began -= 2000.0
        with pytest.raises(DeadlineError, match=r"run_deadline=1000 s and stops before call 1"):
            run.sum(count)


def test_views_share_the_run():
    fed = fs.LocalFederation(make_sites())
    with fed.begin("test") as run:
        run.subset(["s0"]).log(a=1)
        run.sample(0.5).log(b=1)
        run.corrupt(lambda *_: {}, sites=["s0"]).log(c=1)
        run.with_faults(fs.FaultPlan()).log(d=1)
        assert [sorted(entry.values) for entry in run.record.metrics] == [["a"], ["b"], ["c"], ["d"]]
        with run.begin("inner") as inner:
            assert inner.record is run.record


def test_a_view_with_a_bound_fails_the_sites_whose_numbers_are_beyond_it():
    fed = fs.federate(np.ones((9, 2)), sites=np.arange(9) % 3)

    def huge(replies, bad, rng, call):
        return {site: {**replies[site], "mean": np.full(2, 1e200)} for site in bad}

    with fed.corrupt(huge, sites=["1"]).begin("bounded") as run:
        assert tuple(run.ask(mean_of_rows)) == ("0", "1", "2")
        assert tuple(run.bounded(1e100).ask(mean_of_rows)) == ("0", "2")
        assert [site for _, site, _ in run.record.failures] == ["1"]


def test_the_first_sum_of_a_run_crosses_at_most_twelve_files():
    fed = fs.LocalFederation(make_sites()[:3])
    crossed = set()

    def note(frame, event, _):
        if event == "call":
            crossed.add(frame.f_code.co_filename)

    gc.collect()  # or a federation of another test ends meanwhile
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        fed.sum(mean_of_rows)
    finally:
        sys.setprofile(before)
    own = {path for path in crossed if Path(fs.__file__).parent in Path(path).parents}
    assert any(path.endswith("replies.py") for path in own)
    assert len(own) <= 12, sorted(own)


def test_the_record_of_an_open_run_has_versions(fed):
    fed.sum(count)
    assert {"python", "numpy", "BLAS threads"} <= fed.record.versions.keys()


def test_a_script_that_closes_nothing_ends_its_record_and_prints_no_error(tmp_path):
    script = (
        "import builtins, numpy as np, fedspan as fs\n"
        f"fed = builtins.kept = fs.federate(np.eye(4), sites=[0, 0, 1, 1], run_dir={str(tmp_path)!r})\n"
        "fed.sum(fs.step(lambda site: {'n': len(site)}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ""
    assert '"kind": "ended"' in (tmp_path / "run-000" / "record.jsonl").read_text(encoding="utf-8").splitlines()[-1]
