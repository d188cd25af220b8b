"""The sections: their numbers are the record's numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from report_reading import Page, a_call, a_record, logging

import fedspan as fs
from fedspan.federation.record import Metrics, RunRecord
from fedspan.report.sections.call_totals import by_reason, by_site, by_step
from fedspan.report.sections.metrics import MOST_CHARTS, metrics_section
from fedspan.report.sections.run_sections import (
    asked_section,
    failures_section,
    header,
    sites_section,
    stopped_section,
)
from fedspan.report.sections.traffic import traffic_section

SITES = ["a", "b", "c"]


def two_runs() -> list[RunRecord]:
    first = a_record(
        "Scaler", SITES, calls=[a_call(0, "x.moments", SITES, down=5, up=100, seconds=0.25)], stopped="finished"
    )
    calls = [
        a_call(0, "x.start", SITES, down=1, up=2, seconds=0.5),
        a_call(1, "x.multiply", SITES, turn=0, failed={"b": "late by 3 s"}, down=1000, up=2000, seconds=1.0),
        a_call(
            2,
            "x.multiply",
            SITES,
            turn=1,
            failed={"b": "late by 12 s", "c": "no reply"},
            down=1000,
            up=2000,
            seconds=1.0,
        ),
    ]
    second = a_record("PCA", SITES, number=1, calls=calls, stopped="tol reached", seed=77, settings={"tol": 0.5})
    return [first, second]


def test_totals_by_site_add_up_to_the_record():
    records = two_runs()
    totals = by_site(records, also=["z"])
    assert list(totals) == ["a", "b", "c", "z"]
    assert (totals["b"].asked, totals["b"].answered, totals["b"].failed) == (4, 2, 2)
    assert (totals["b"].down, totals["b"].up) == (5 + 1 + 2000, 100 + 2)
    assert sum(t.up for t in totals.values()) == sum(r.bytes_up for r in records)
    assert sum(t.down for t in totals.values()) == sum(r.bytes_down for r in records)


def test_totals_by_step_keep_the_order_of_first_calls():
    steps = by_step(two_runs()[1])
    assert [(s.step, s.calls, s.asked, s.answered, s.failed) for s in steps] == [
        ("x.start", 1, 3, 3, 0),
        ("x.multiply", 2, 6, 3, 3),
    ]
    assert (steps[1].down, steps[1].up, steps[1].seconds) == (6000, 6000, 2.0)


def test_reasons_that_differ_in_numbers_are_one():
    reasons = by_reason(two_runs())
    assert [(r.text, r.count) for r in reasons] == [("late by 3 s", 2), ("no reply", 1)]
    assert dict(reasons[0].sites) == {"b": 2}
    assert dict(reasons[0].steps) == {"x.multiply": 2}


def test_reasons_that_differ_in_the_step_s_name_are_one():
    def call(number, step, spent):
        why = f"step {step!r} raised BudgetError: its budget is epsilon=6 at delta=1e-05, it has spent {spent}"
        return a_call(number, step, SITES, failed={"a": why})

    record = a_record(calls=[call(0, "x.start", "4"), call(1, "x.multiply", "5.25e-3"), call(2, "x.end", "0.5")])
    (reason,) = by_reason([record])
    assert (reason.count, list(reason.steps)) == (3, ["x.start", "x.multiply", "x.end"])
    text = Page(failures_section([record])).text
    assert "step 'x.start' raised BudgetError" in text
    assert "a start, multiply, end 3" in text


def test_header_says_what_ran_and_how_it_ended():
    page = Page(header("Title", two_runs(), {"a": {"rows": 1500}, "b": {"rows": 30}}))
    assert "Scaler, then PCA: 9 of 12 replies came back; tol reached." in page.text
    assert "rows 1 530" in page.text
    assert "calls 4" in page.text
    assert "failed replies 3" in page.text
    assert "time in calls 2.75 s" in page.text
    assert page.all("div", "bad")
    assert not Page(header("Title", two_runs()[:1], None)).all("div", "bad")


def test_what_was_asked_has_settings_seeds_and_parameters():
    page = Page(asked_section(two_runs(), {"file": "table.csv"}))
    for words in ("Settings file table.csv", "PCA seed 77 tol 0.5"):
        assert words in page.text
    many = Page(asked_section([a_record(f"run-{i:02d}") for i in range(15)], None))
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
    record = a_record(sites=SITES, calls=[a_call(0, "f", SITES, failed={"a": "no reply", "c": "no reply"})])
    assert "3 sites; 2 of those asked never answered" in Page(sites_section([record], None)).text
    assert "3 sites; none was asked" in Page(sites_section([a_record(sites=SITES)], None)).text


def test_thirty_sites_are_shown_and_the_rest_is_summed():
    names = [f"s{i:02d}" for i in range(32)]
    record = a_record(sites=names, calls=[a_call(0, "f", names, failed={"s31": "no reply"})])
    page = Page(sites_section([record], None))
    assert "s29" in page.text
    assert "s30" not in page.text
    assert "and 2 more sites 1 of 2 1 20 20" in page.text
    assert "more site" not in Page(sites_section([a_record(sites=names[:30])], None)).text


def test_every_call_has_its_line_up_to_fifty():
    page = Page(traffic_section(two_runs()))
    assert "4 calls in 2 rounds" in page.text
    assert "2 x. multiply 1 1 of 3 2 000 3 000 1.0000" in page.text
    assert "all 9 of 12 6 306 6 018 2.7500" in page.text
    assert len(page.all("tr", "group")) == 2
    fifty = a_record(calls=[a_call(i, "f", SITES) for i in range(50)])
    assert len(Page(traffic_section([fifty])).all("tr")) == 52
    fifty.calls.append(a_call(50, "f", SITES))
    assert len(Page(traffic_section([fifty])).all("tr")) == 3


def test_calls_read_from_a_journal_are_marked():
    record = a_record(calls=[a_call(0, "f", SITES, replayed=True), a_call(1, "f", SITES)])
    assert Page(traffic_section([record])).text.count("from the journal") == 1
    record.calls *= 40
    assert "40 from the journal" in Page(traffic_section([record])).text


def test_many_steps_are_cut_and_summed():
    record = a_record(calls=[a_call(i, f"step-{i:03d}", ["a"]) for i in range(60)])
    page = Page(traffic_section([record]))
    assert "and 10 more steps, counted in the last line" in page.text
    assert "all 60 60 of 60 1 200 600 30.00" in page.text
    assert "and 55 steps with less" in page.text


def test_steps_with_the_same_last_name_keep_their_whole_names_in_the_bars():
    record = a_record(calls=[a_call(0, "one.f", ["a"]), a_call(1, "two.f", ["a"])])
    assert "one.f" in Page(traffic_section([record])).words


def test_bytes_so_far_end_at_the_record_s_bytes():
    record = a_record(calls=[a_call(i, "f", ["a"], up=250, down=0) for i in range(4)])
    page = Page(traffic_section([record]))
    titles = [words for words in page.words if words.startswith("up at ")]
    assert titles == ["up at 0: 0 B", "up at 1: 250 B", "up at 2: 500 B", "up at 3: 750 B", "up at 4: 1 kB"]


def test_why_it_stopped_is_said_for_each_run():
    records = [*two_runs(), a_record("Third", stopped="failed: QuorumError: too few"), a_record("Fourth")]
    page = Page(stopped_section(records))
    assert "PCA tol reached after 3 calls in 2 rounds" in page.text
    assert "Fourth not ended: still running, or it was killed; no call was made; run it again" in page.text
    assert [len(page.all("li", kind)) for kind in ("good", "bad", "open")] == [2, 1, 1]
    many = Page(stopped_section([a_record(f"run-{i:02d}") for i in range(15)]))
    assert "run-14" in many.text
    assert "run-02" not in many.text
    assert "3 earlier runs not shown" in many.text


def test_a_run_that_was_killed_says_how_far_it_came_and_how_to_go_on():
    record = a_record(calls=[a_call(0, "x.start", SITES), a_call(1, "x.multiply", SITES, turn=0)])
    said = "not ended: still running, or it was killed"
    assert f"replies came back; {said}." in Page(header("Title", [record], None)).text
    page = Page(stopped_section([record]))
    assert f"{said}; the last call was 1, multiply in round 0; run it again with the same run_dir" in page.text
    assert page.all("li", "open")


def test_a_run_that_its_user_interrupted_says_so_in_words(tmp_path):
    def interrupt(replies, bad, rng, call):
        raise KeyboardInterrupt

    fed = fs.federate(np.eye(6), sites=np.arange(6) % 3, run_dir=tmp_path).corrupt(interrupt, sites=["1"])
    with pytest.raises(KeyboardInterrupt):
        fs.FedPCA(2).fit(fed)
    new = RunRecord.from_lines((tmp_path / "run-000" / "record.jsonl").read_text().splitlines())
    assert new.stopped == "interrupted by the user"
    for record in (new, a_record(stopped="failed: KeyboardInterrupt: ")):
        assert "interrupted by the user." in Page(header("Title", [record], None)).text
        page = Page(stopped_section([record]))
        assert "interrupted by the user; " in page.text
        assert "run it again with the same run_dir" in page.text
        assert "KeyboardInterrupt" not in page.text
        assert page.all("li", "bad")
    wordless = a_record(stopped="failed: RuntimeError: ")
    assert "failed: RuntimeError." in Page(header("Title", [wordless], None)).text


def test_failures_are_grouped_with_sites_and_steps():
    page = Page(failures_section(two_runs()))
    assert "3 failed replies" in page.text
    assert "late by 3 s b multiply 2" in page.text
    assert "no reply c multiply 1" in page.text
    good = a_record(calls=[a_call(0, "f", SITES)])
    assert "Every site that was asked gave a usable reply" in Page(failures_section([good])).text


def test_many_reasons_and_many_sites_are_cut():
    names = [f"s{i}" for i in range(9)]
    words = ["".join(chr(ord("a") + int(d)) for d in str(i)) for i in range(100, 125)]
    calls = [a_call(0, "f", names, failed=dict.fromkeys(names, "no reply"))]
    calls += [a_call(i, "f", ["s0"], failed={"s0": word}) for i, word in enumerate(words)]
    page = Page(failures_section([a_record(calls=calls)]))
    assert "no reply s0, s1, s2, s3 and 5 more f 9" in page.text
    assert "and 6 other reasons for 6 failed replies" in page.text


def test_metrics_with_numbers_become_charts():
    page = Page(metrics_section([logging([{"loss": 4.0, "rank": 3}, {"loss": 2.0, "rank": 3}])]))
    assert len(page.all("polyline")) == 2
    assert "loss" in page.words
    assert "2 at the end" in page.text


def test_values_that_are_not_finite_are_skipped_and_counted():
    values = [1.0, float("nan"), 3.0, float("inf"), 5.0, "nan", 10**400, 1e305]
    page = Page(metrics_section([logging([{"loss": value} for value in values])]))
    assert len(page.all("circle")) == 3
    assert "5 values that are not finite are not drawn" in page.text
    assert "nan" not in page.html.split("<polyline")[1]
    one = Page(metrics_section([logging([{"loss": v} for v in (1.0, 2.0, float("nan"))])]))
    assert "1 value that is not finite is not drawn" in one.text


def test_metric_without_any_finite_value_is_listed():
    page = Page(metrics_section([logging([{"loss": float("nan")}] * 3)]))
    assert page.all("svg") == []
    assert "loss FedPCA 3 values not finite" in page.text


def test_texts_and_single_values_are_listed():
    page = Page(metrics_section([logging([{"start": "random", "gap": 0.25, "done": True}])]))
    assert page.all("svg") == []
    for words in ("start FedPCA random", "gap FedPCA 0.25", "done FedPCA True"):
        assert words in page.text


def test_words_among_the_numbers_are_counted():
    page = Page(metrics_section([logging([{"x": 1.0}, {"x": "skipped"}, {"x": 2.0}])]))
    assert "1 value in words not drawn" in page.text


def test_numbers_over_three_decades_get_a_logarithmic_axis():
    wide = Page(metrics_section([logging([{"loss": 10.0**-i} for i in range(5)])]))
    assert "logarithmic axis" in wide.text
    heights = [float(a["cy"]) for a in wide.all("circle")]
    assert np.allclose(np.diff(heights), heights[1] - heights[0], atol=0.02)
    assert "logarithmic" not in Page(metrics_section([logging([{"loss": 1.0 + i} for i in range(5)])])).text
    assert "logarithmic" not in Page(metrics_section([logging([{"loss": i * 1e6} for i in range(5)])])).text
    ramp = [{"loss": 0.1 + i} for i in range(1001)]
    assert "logarithmic" not in Page(metrics_section([logging(ramp)])).text


def test_runs_that_log_the_same_metric_share_a_chart():
    records = [logging([{"loss": 1.0}, {"loss": i + 2.0}], what=f"run-{i}") for i in range(10)]
    page = Page(metrics_section(records))
    assert len(page.all("svg")) == 1
    assert len(page.all("polyline")) == 8
    assert "the first 8 of 10 runs" in page.text
    assert "run-7" in page.words


def test_at_most_twelve_charts_and_the_others_in_the_table():
    page = Page(metrics_section([logging([{f"m{j:02d}": float(i + j) for j in range(14)} for i in range(3)])]))
    assert len(page.all("svg")) == MOST_CHARTS == 12
    assert "2 more metrics would make a chart" in page.text
    assert "m13 FedPCA 15" in page.text


def test_metrics_outside_of_rounds_stand_over_calls():
    record = a_record()
    record.metrics += [Metrics(4, None, {"loss": 1.0}), Metrics(9, None, {"loss": 2.0})]
    page = Page(metrics_section([record]))
    assert "call" in page.words
    assert "loss" in page.words
    assert "FedPCA at 4: 1" in page.words
    assert "round" in Page(metrics_section([logging([{"loss": 1.0}, {"loss": 2.0}])])).words


def of_loops(loops: list[list[float]], between: list[int | None]) -> RunRecord:
    """Return a run with loops that log their losses; `between` are rounds of calls without losses after each loop."""
    record = a_record()
    for losses in loops:
        for turn, loss in enumerate(losses):
            record.calls.append(a_call(len(record.calls), "f", ["a"], turn=turn))
            record.metrics.append(Metrics(len(record.calls) - 1, turn, {"loss": loss}))
        record.calls += [a_call(len(record.calls) + i, "g", ["a"], turn=turn) for i, turn in enumerate(between)]
    return record


def polylines(page: Page) -> list[list[tuple[float, float]]]:
    return [[tuple(map(float, pair.split(","))) for pair in a["points"].split()] for a in page.all("polyline")]


def test_every_loop_of_a_run_is_a_curve_of_its_own():
    losses = [[4.0, 3.0, 2.0], [5.0, 1.0], [6.0, 5.0, 4.0, 3.0]]
    for between, x in (
        ([], [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
        ([None], [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
        ([None, 0, 1, None], [[0, 1, 2], [5, 6], [9, 10, 11, 12]]),  # rounds of loops that log nothing count too
    ):
        page = Page(metrics_section([of_loops(losses, between)]))
        told = [words for words in page.words if words.startswith("FedPCA at ")]
        each = [
            f"FedPCA at {i}: {y:g}" for some, ys in zip(x, losses, strict=True) for i, y in zip(some, ys, strict=True)
        ]
        assert told == each
        assert [len(line) for line in polylines(page)] == [3, 2, 4]
        right = [place for line in polylines(page) for place, _ in line]
        assert right == sorted(right)  # no line runs back
        assert "3 at the end; a curve for each of 3 loops, which begin at the dotted lines" in page.text
        assert "round, counted through the run" in page.words
        assert len(page.all("path", "mark")) == 2  # where the second and the third begin


def test_a_metric_of_one_loop_among_others_counts_its_own_rounds():
    page = Page(metrics_section([of_loops([[2.0, 1.0]], [None, 0, 1, 2])]))
    assert "FedPCA at 1: 1" in page.words
    assert "round" in page.words
    assert "loop" not in page.text


def test_a_loop_of_many_rounds_keeps_its_ends_when_loops_are_many():
    page = Page(metrics_section([of_loops([[float(i) for i in range(200)]] * 70, [])]))
    lines = polylines(page)
    assert len(lines) == 40
    assert {len(line) for line in lines} == {6}
    assert len({(line[0][1], line[-1][1]) for line in lines}) == 1
    assert page.all("path", "mark") == []
    assert "199 at the end; a curve for each of the last 40 of 70 loops" in page.text
    assert "dotted" not in page.text


def test_runs_with_several_loops_share_a_chart_with_a_colour_each():
    records = [of_loops([[2.0, 1.0], [3.0, 2.0]], []), replace(of_loops([[5.0, 4.0]], []), what="FedKMeans")]
    page = Page(metrics_section(records))
    assert [a["class"] for a in page.all("polyline")] == ["line s0", "line s0", "line s1"]
    assert "a curve for each of the loops of a run, one after another" in page.text
    assert "round" in page.words
    assert "call" not in page.text


def test_rounds_of_several_loops_add_up():
    record = of_loops([[1.0] * 3, [1.0] * 2], [None])
    assert (
        "FedPCA finished after 7 calls in 5 rounds" in Page(stopped_section([replace(record, stopped="finished")])).text
    )
    assert "7 calls in 5 rounds" in Page(traffic_section([record])).text
