"""The head of the page, requests, sites, endings and failures: the numbers are those of the records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation import Ending, Failure
from fedspan.federation.outcomes import EndingKind, FailureKind
from fedspan.federation.record import RunRecord
from fedspan.report.sections.run_sections import (
    failures_section,
    reasons_of,
    requested_section,
    run_header,
    sites_section,
    stopped_section,
)

from .report_reading import FINISHED, NO_REPLY, SITES, Page, a_call, a_record, of_loops, two_runs


def test_reasons_have_their_text_sites_and_steps():
    assert reasons_of(two_runs()) == {
        "late: by 3 s": [("b", "x.multiply")],
        "late: by 12 s": [("b", "x.multiply")],
        "no reply": [("c", "x.multiply")],
    }


def test_of_one_kind_the_first_texts_are_shown_and_the_others_counted_together():
    def call(number, step, spent):
        why = Failure(FailureKind.BUDGET_SPENT, f"it has spent {spent}")
        return a_call(number, step, SITES, failed={"a": why, "b": NO_REPLY})

    record = a_record(calls=[call(i, f"x.{i % 2}", spent) for i, spent in enumerate([4, 4, 5, 6, 7, 8, 4])])
    reasons = reasons_of([record])
    assert {text: len(where) for text, where in reasons.items()} == {
        "no reply": 7,
        "budget spent: it has spent 4": 3,
        "budget spent: it has spent 5": 1,
        "budget spent: it has spent 6": 1,
        "budget spent, for other reasons": 2,
    }
    assert reasons["budget spent: it has spent 4"] == [("a", "x.0"), ("a", "x.1"), ("a", "x.0")]
    assert "budget spent: it has spent 4 a x.0, x.1 3" in Page(failures_section([record])).text


def test_the_header_has_what_ran_and_how_it_ended():
    page = Page(run_header("Title", two_runs(), {"a": {"rows": 1500}, "b": {"rows": 30}}))
    assert "Scaler, then PCA: 9 of 12 replies came back; tol reached." in page.text
    assert "rows 1 530" in page.text
    assert "calls 4" in page.text
    assert "failed replies 3" in page.text
    assert "time in calls 2.75 s" in page.text
    assert page.all("div", "bad")
    assert not Page(run_header("Title", two_runs()[:1], None)).all("div", "bad")


def test_requests_have_settings_seeds_and_parameters():
    page = Page(requested_section(two_runs(), {"file": "table.csv"}))
    for words in ("Settings file table.csv", "PCA seed 77 tol 0.5"):
        assert words in page.text
    many = Page(requested_section([a_record(f"run-{i:02d}") for i in range(15)], None))
    assert "run-11" in many.text
    assert "run-12" not in many.text
    assert "and 3 more runs" in many.text


def test_sites_table_has_data_sizes_answers_and_bytes():
    page = Page(sites_section(two_runs(), {"a": {"rows": 1000, "columns": 4}, "b": {"rows": 7, "columns": 4}}))
    assert "a 1 000 4 4 of 4 0 4 102 2 006" in page.text
    assert "b 7 4 2 of 4 2 102 2 006" in page.text
    assert "c – – 3 of 4 1" in page.text
    assert "all 1 007 9 of 12 3 6 306 6 018" in page.text
    assert "columns" not in Page(sites_section(two_runs(), None)).text


def test_sites_that_never_answered_are_counted():
    record = a_record(sites=SITES, calls=[a_call(0, "f", SITES, failed={"a": NO_REPLY, "c": NO_REPLY})])
    assert "3 sites; 2 of those called never answered" in Page(sites_section([record], None)).text
    assert "3 sites; none was called" in Page(sites_section([a_record(sites=SITES)], None)).text


def test_thirty_sites_are_shown_and_the_rest_is_summed():
    names = [f"s{i:02d}" for i in range(32)]
    record = a_record(sites=names, calls=[a_call(0, "f", names, failed={"s31": NO_REPLY})])
    page = Page(sites_section([record], None))
    assert "s29" in page.text
    assert "s30" not in page.text
    assert "and 2 more sites 1 of 2 1 20 20" in page.text
    assert "more site" not in Page(sites_section([a_record(sites=names[:30])], None)).text


def test_the_ending_of_each_run_is_shown():
    records = [
        *two_runs(),
        a_record("Third", stopped=Ending(EndingKind.FAILED, "QuorumError: too few")),
        a_record("Fourth"),
    ]
    page = Page(stopped_section(records))
    assert "PCA tol reached after 3 calls in 2 rounds" in page.text
    assert "Fourth not ended: still running, or it was killed; no call was made; run it again" in page.text
    assert [len(page.all("li", kind)) for kind in ("good", "bad", "open")] == [2, 1, 1]
    many = Page(stopped_section([a_record(f"run-{i:02d}") for i in range(15)]))
    assert "run-14" in many.text
    assert "run-02" not in many.text
    assert "and 3 more runs before" in many.text


def test_a_killed_run_has_its_last_call_and_the_way_to_continue():
    record = a_record(calls=[a_call(0, "x.start", SITES), a_call(1, "x.multiply", SITES, turn=0)])
    state = "not ended: still running, or it was killed"
    assert f"replies came back; {state}." in Page(run_header("Title", [record], None)).text
    page = Page(stopped_section([record]))
    assert f"{state}; the last call was 1, x.multiply in round 0; run it again with the same run_dir" in page.text
    assert page.all("li", "open")


def test_an_interrupted_run_has_its_own_words(tmp_path):
    def interrupt(replies, bad, rng, call):
        raise KeyboardInterrupt

    fed = fs.federate(np.eye(6), sites=np.arange(6) % 3, run_dir=tmp_path).corrupt(interrupt, sites=["1"])
    with pytest.raises(KeyboardInterrupt):
        fs.FedPCA(2).fit(fed)
    new = RunRecord.from_lines((tmp_path / "run-000" / "record.jsonl").read_text().splitlines())
    assert new.stopped == "interrupted by the user"
    assert new.stopped.kind is EndingKind.INTERRUPTED
    assert "interrupted by the user." in Page(run_header("Title", [new], None)).text
    page = Page(stopped_section([new]))
    assert "interrupted by the user; " in page.text
    assert "run it again with the same run_dir" in page.text
    assert "KeyboardInterrupt" not in page.text
    assert page.all("li", "bad")
    wordless = a_record(stopped=Ending(EndingKind.FAILED, "failed: RuntimeError: "))
    assert "failed: RuntimeError." in Page(run_header("Title", [wordless], None)).text


def test_failures_are_grouped_with_sites_and_steps():
    page = Page(failures_section(two_runs()))
    assert "3 failed replies" in page.text
    assert "late: by 3 s b x.multiply 1" in page.text
    assert "no reply c x.multiply 1" in page.text
    good = a_record(calls=[a_call(0, "f", SITES)])
    assert "Every site that was called gave a usable reply" in Page(failures_section([good])).text


def test_many_reasons_and_many_sites_are_cut():
    names = [f"s{i}" for i in range(9)]
    calls = [a_call(0, "f", names, failed=dict.fromkeys(names, NO_REPLY))]
    others = [Failure(kind, f"{i}") for kind in FailureKind if kind is not FailureKind.NO_REPLY for i in range(2)]
    calls += [a_call(i, "f", ["s0"], failed={"s0": why}) for i, why in enumerate(others)]
    page = Page(failures_section([a_record(calls=calls)]))
    assert "no reply s0, s1, s2, s3 and 5 more f 9" in page.text
    assert "and 7 more reasons for 7 failed replies" in page.text


def test_rounds_of_several_loops_add_up():
    record = of_loops([[1.0] * 3, [1.0] * 2], [None])
    text = Page(stopped_section([replace(record, stopped=FINISHED)])).text
    assert "FedPCA finished after 7 calls in 5 rounds" in text
