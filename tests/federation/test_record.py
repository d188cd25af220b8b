"""The record of a run."""

from __future__ import annotations

import json
import time

import pytest

import fedspan as fs
from fedspan.federation.record import CallRecord, RunRecord
from fedspan.federation.versions import processor
from fedspan.wire import encode

from .conftest import count, make_sites, wander


@pytest.fixture
def record(wire):
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(quorum=1))
    with fed.with_faults(fs.FaultPlan(seed=2, drop=0.2)).begin("test", {"rounds": 6}) as run:
        wander(run)
    return run.record


def test_it_says_who_was_asked_what_it_cost_and_why_it_stopped(record):
    assert record.what == "test"
    assert record.settings == {"rounds": "6"}
    assert record.stopped == "five rounds are enough"
    assert len(record.calls) == 10
    for call in record.calls:
        assert call.step.endswith(".walk")
        assert set(call.answered) | set(call.failed) == set(call.asked)
        assert set(call.bytes_up) == set(call.answered)
        assert set(call.bytes_down) == set(call.asked)
        assert call.seconds > 0
    assert [call.round for call in record.calls] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert record.failures
    assert all("lost" in why for _, _, why in record.failures)


def test_bytes_are_those_of_the_messages(fed):
    fed.ask(count)
    call = fed.record.calls[0]
    assert call.bytes_up["s0"] == len(encode({"n": 4}))
    assert call.bytes_down["s0"] == len(encode({}))
    assert fed.record.bytes_up == 7 * len(encode({"n": 4}))


def test_frame(record):
    frame = record.to_frame()
    assert frame["call"].tolist() == list(range(10))
    assert frame["bytes_up"].sum() == record.bytes_up
    assert frame["norm"].notna().sum() == 5
    assert (frame["asked"] == 7).sum() == 5


def test_json_lines_round_trip(record):
    lines = record.lines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert fs.RunRecord.from_lines(lines) == record


def test_infinities_are_still_json(fed):
    fed.log(a=float("nan"), b=float("inf"))
    line = fed.record.lines()[-1]
    assert json.loads(line, parse_constant=pytest.fail)["values"] == {"a": {"float": "nan"}, "b": {"float": "inf"}}
    assert fs.RunRecord.from_lines(fed.record.lines()).metric("b") == [float("inf")]


def test_leaving_the_loop_by_oneself_ends_the_round(fed):
    for t in fed.rounds(5):
        fed.log(round=t, seconds=1.5)
        if t == 1:
            break
    del t
    import gc

    gc.collect()
    fed.ask(count)
    assert fed.record.calls[0].round is None
    frame = fed.record.to_frame()
    assert frame["round (logged)"].tolist() == [1]
    assert frame["seconds"].iloc[0] != 1.5


def test_a_federation_that_is_closed_says_so(tmp_path):
    with fs.LocalFederation(make_sites(), run_dir=tmp_path) as fed:
        fed.ask(count)
        record = fed.record
    assert record.stopped == "closed"
    assert "closed" in (tmp_path / "run-000" / "record.jsonl").read_text().splitlines()[-1]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fs.errors.InputError, match="cannot be used"):
        fs.LocalFederation(make_sites(), run_dir=tmp_path / "file").ask(count)


def test_a_failed_run_says_so():
    fed = fs.LocalFederation(make_sites())
    with pytest.raises(RuntimeError), fed.begin("test") as run:
        raise RuntimeError("out of luck")
    assert run.record.stopped == "failed: RuntimeError: out of luck"
    assert "out of luck" in run.record.summary()


def test_what_a_protocol_refuses_is_a_failed_site_too(fed, tmp_path):
    def check(reply):
        if reply["n"] > 9:
            raise fs.errors.InputError("too many")
        return {"n": 10 * reply["n"]}

    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    with fed.begin("test") as run:
        accepted = run.accept(run.ask(count), check)
        assert accepted.stack("n").tolist() == [40, 50, 60, 70, 80, 90]
        assert accepted.failed == {"s6": "refused: too many"}
        assert run.record.calls[0].failed == accepted.failed
        assert run.record.calls[0].answered == tuple(accepted.ok)
        assert run.accept(run.ask(count), lambda reply: reply).failed == {}
        run.accept(run.ask(count), check)
        assert [sorted(call.failed) for call in run.record.calls] == [["s6"], [], ["s6"]]
    lines = (tmp_path / "run-000" / "record.jsonl").read_text().splitlines()
    assert fs.RunRecord.from_lines(lines) == run.record

    def refuse(reply):
        raise fs.errors.InputError("no")

    with pytest.raises(fs.errors.QuorumError, match=r"0 of 7 sites answered .*s0: refused: no"):
        fed.accept(fed.ask(count), refuse)


def test_it_says_who_was_away_and_when_it_was_back():
    record = RunRecord("demo", {}, 0, 0, ("a", "b"))
    reasons = ["", "away: no answer", "away: no answer", "", "no", "away: gone", "", "away: gone"]
    for number, why in enumerate(reasons):
        asked = ("a", "b") if number != 4 else ("a",)  # b was not asked there
        failed = {"b": why} if why and number != 4 else {}
        record.calls.append(CallRecord(number, "s", None, asked, (), failed, {}, {}, 0.0))
    assert record.absences == [
        "site b was away in calls 1 to 2, and there again in call 3",
        "site b was away in call 5, and there again in call 6",
        "site b was away in call 7",
    ]
    assert record.summary().endswith("site b was away in call 7")


def test_it_keeps_versions_policy_transforms_and_what_was_rehearsed(record, tmp_path):
    import numpy as np

    assert record.versions["numpy"] == np.__version__
    assert list(record.versions)[:2] == ["python", "fedspan"]
    assert record.policy["quorum"] == "1"
    assert record.policy["secure_sum"] == "False"
    assert record.conditions.startswith("FaultPlan(")
    assert record.transforms == ()
    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    scaled = fs.FedStandardScaler().fit(fed).transform(fed)
    later = fs.FedStandardScaler().fit(scaled).run_
    assert [name.rpartition(".")[2] for name in later.transforms] == ["standardize"]
    written = (tmp_path / "run-001" / "record.jsonl").read_text().splitlines()
    assert RunRecord.from_lines(written) == later


def test_it_says_what_was_wanted_of_the_replies(fed):
    fed.ask(count)
    fed.sum(count)
    fed.mean(count)
    assert [call.how for call in fed.record.calls] == ["ask", "sum", "mean"]
    secure = fs.LocalFederation(make_sites(), policy=fs.Policy(secure_sum=True))
    secure.sum(count)
    assert secure.record.calls[0].how == "secure sum"


def test_a_package_that_the_run_loads_is_in_its_versions(monkeypatch, tmp_path):
    """At first the record has what is loaded when the run begins, so that a killed run has it; then what came later."""
    import sys

    monkeypatch.delitem(sys.modules, "nvflare", raising=False)
    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    with fed.begin("test") as run:
        file = tmp_path / "run-000" / "record.jsonl"
        run.ask(count)
        early = RunRecord.from_lines(file.read_text().splitlines()).versions
        monkeypatch.setitem(sys.modules, "nvflare", sys)
    assert "nvflare" not in early
    assert early["scipy"] == run.record.versions["scipy"]
    assert "nvflare" in run.record.versions
    assert RunRecord.from_lines(file.read_text().splitlines()).versions == run.record.versions


@pytest.mark.parametrize("threads", [1, 2])
def test_it_keeps_processor_and_threads_and_no_name_of_the_machine(threads, tmp_path):
    import platform

    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, user_api="blas"):
        fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
        with fed.begin("test") as run:
            run.ask(count)
    text = (tmp_path / "run-000" / "record.jsonl").read_text()
    found = RunRecord.from_lines(text.splitlines()).versions
    assert found["BLAS threads"] == str(threads)
    assert found["processor"] == processor() != ""
    assert platform.node() not in found.values()


def test_a_resumed_run_has_the_threads_of_its_journal(tmp_path):
    from threadpoolctl import threadpool_limits

    def begun():
        return fs.LocalFederation(make_sites(), run_dir=tmp_path).begin("test")

    def cut_short():
        with begun() as run:
            run.ask(count)
            raise RuntimeError

    with threadpool_limits(2, user_api="blas"), pytest.raises(RuntimeError):
        cut_short()
    with threadpool_limits(1, user_api="blas"), begun() as run:
        run.ask(count)
        # Also where it is killed now.
        early = RunRecord.from_lines((tmp_path / "run-000" / "record.jsonl").read_text().splitlines())
        assert early.versions["BLAS threads"] == "2"
    assert run.record.versions["BLAS threads"] == "2"


def test_a_record_of_an_older_run_is_read_without_what_it_lacks(record):
    old = [json.loads(line) for line in record.lines()]
    old = [entry for entry in old if entry["kind"] != "versions"]
    for key in ("policy", "transforms", "conditions"):
        del old[0][key]
    for entry in old:
        entry.pop("how", None)
    read = RunRecord.from_lines([json.dumps(entry) for entry in old])
    assert (read.versions, read.policy, read.transforms, read.conditions) == ({}, {}, (), "")
    assert {call.how for call in read.calls} == {""}
    assert read.bytes_up == record.bytes_up


class Told(fs.federation.run.Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.lines = []

    def began(self, record):
        self.lines.append(("began", record.what))

    def round(self, number, of):
        self.lines.append(("round", number, of))

    def called(self, call):
        self.lines.append(("called", call.number))

    def logged(self, metrics):
        self.lines.append(("logged", metrics.values))

    def ended(self, record):
        self.lines.append(("ended", record.stopped))


def test_observers_are_told_what_a_run_does_as_it_does_it(fed):
    for_all, for_one = Told(), Told()
    fed.observe(for_all)
    with fed.begin("test", observers=[for_one]) as run:
        for t in run.rounds(2):
            run.ask(count)
            run.log(t=t)
    rounds = [line for t in (0, 1) for line in (("round", t, 2), ("called", t), ("logged", {"t": t}))]
    expected = [("began", "test"), *rounds, ("ended", "all 2 rounds done")]
    assert for_one.lines == expected
    assert for_all.lines == expected


def test_a_secure_sum_takes_no_longer_than_its_caller_waits():
    fed = fs.LocalFederation(make_sites(), policy=fs.Policy(secure_sum=True))
    start = time.perf_counter()
    fed.sum(count)
    assert 0.0 < fed.record.calls[0].seconds < time.perf_counter() - start
