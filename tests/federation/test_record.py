"""The record of a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.outcomes import EndingKind, Failure, FailureKind
from fedspan.federation.record import CallRecord, RunRecord
from fedspan.federation.versions import processor

from .conftest import count, make_sites, wander


@pytest.fixture
def record(wire):
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(quorum=1))
    with fed.with_faults(fs.FaultPlan(seed=2, drop=0.2)).begin("test", {"rounds": 6}) as run:
        wander(run)
    return run.record


def test_it_says_who_was_asked_what_it_cost_and_why_it_stopped(record):
    assert record.what == "test"
    assert record.settings == {"rounds": 6}
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
    assert {why.kind for _, _, why in record.failures} == {FailureKind.NO_REPLY}
    assert record.stopped.kind is EndingKind.STOPPED


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


def test_it_names_the_sites_that_were_offline_and_when_they_were_back():
    record = RunRecord("demo", {}, 0, 0, ("a", "b"))
    offline, late = Failure(FailureKind.OFFLINE, "no answer"), Failure(FailureKind.LATE)
    for number, why in enumerate([None, offline, offline, None, late, offline, None, offline]):
        asked = ("a", "b") if number != 4 else ("a",)  # b was not requested there
        failed = {"b": why} if why and number != 4 else {}
        record.calls.append(CallRecord(number, "s", None, asked, (), failed, {}, {}, 0.0))
    assert record.absences == [
        "site b was offline in calls 1 to 2 and back in call 3",
        "site b was offline in call 5 and back in call 6",
        "site b was offline in call 7",
    ]
    assert record.summary().endswith("site b was offline in call 7")


def test_it_keeps_versions_policy_transforms_and_what_was_rehearsed(record, tmp_path):

    assert record.versions["numpy"] == np.__version__
    assert list(record.versions)[:2] == ["python", "fedspan"]
    assert record.policy["quorum"] == 1
    assert record.policy["secure_sum"] is False
    assert record.conditions.startswith("FaultPlan(")
    assert record.transforms == ()
    fed = fs.LocalFederation(make_sites(), run_dir=tmp_path)
    scaled = fs.FedStandardScaler().fit(fed).transform(fed)
    later = fs.FedStandardScaler().fit(scaled).run_
    assert later.transforms == ("sums.standardize",)
    written = (tmp_path / "run-001" / "record.jsonl").read_text().splitlines()
    assert RunRecord.from_lines(written) == later


def test_it_says_what_was_wanted_of_the_replies(fed):
    fed.ask(count)
    fed.sum(count)
    fed.mean(count)
    assert [(call.how, call.secure) for call in fed.record.calls] == [("ask", False), ("sum", False), ("mean", False)]
    secure = fs.LocalFederation(make_sites(), policy=fs.Policy(secure_sum=True))
    secure.sum(count)
    assert (secure.record.calls[0].how, secure.record.calls[0].secure) == ("sum", True)


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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "run"}', '{"kind": 1}', "9" * 5000, "[" * 100_000, "null"])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(InputError, match="not a record of a run"):
        RunRecord.from_lines([text])


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("call", {"seconds": "x"}), ("call", {"bytes_up": {"a": {}}}), ("call", {"round": []}), ("run", {"settings": []})],
)
def test_lines_of_other_types_are_refused(kind, wrong):
    """They were read, and the report of the run raised a foreign error."""
    lines = fs.FedPCA(1).fit(np.eye(6), sites=list("aaabbb")).run_.lines()
    assert RunRecord.from_lines(lines).what == "FedPCA"
    changed = [json.loads(line) for line in lines]
    changed = [json.dumps(line | wrong if line["kind"] == kind else line) for line in changed]
    with pytest.raises(InputError, match="not a record of a run, or it is damaged"):
        RunRecord.from_lines(changed)
