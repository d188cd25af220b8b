"""Metrics: a chart for every number that changes, and a table for the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedspan.federation.record import Metrics
from fedspan.report.sections.metrics import MOST_CHARTS, metrics_section

from .report_reading import Page, a_record, logging, of_loops


def polylines(page: Page) -> list[list[tuple[float, float]]]:
    return [[tuple(map(float, pair.split(","))) for pair in a["points"].split()] for a in page.all("polyline")]


def test_metrics_with_numbers_become_charts():
    page = Page(metrics_section([logging([{"loss": 4.0, "rank": 3}, {"loss": 2.0, "rank": 3}])]))
    assert len(page.all("polyline")) == 2
    assert "loss" in page.words
    assert "2 at the end" in page.text


def test_values_that_are_not_finite_are_skipped_and_counted():
    values = [1.0, float("nan"), 3.0, float("inf"), 5.0, 10**400, 1e305]
    page = Page(metrics_section([logging([{"loss": value} for value in values])]))
    assert len(page.all("circle")) == 3
    assert "not drawn: 4 values not finite" in page.text
    assert "nan" not in page.html.split("<polyline")[1]
    one = Page(metrics_section([logging([{"loss": v} for v in (1.0, 2.0, float("nan"))])]))
    assert "not drawn: 1 value not finite" in one.text


def test_metric_without_any_finite_value_is_listed():
    page = Page(metrics_section([logging([{"loss": float("nan")}] * 3)]))
    assert page.all("svg") == []
    assert "loss FedPCA 3 values not finite" in page.text


def test_texts_and_single_values_are_listed():
    page = Page(metrics_section([logging([{"start": "random", "gap": 0.25, "done": True}])]))
    assert page.all("svg") == []
    for words in ("start FedPCA random", "gap FedPCA 0.25", "done FedPCA True"):
        assert words in page.text


def test_texts_among_the_numbers_are_counted():
    page = Page(metrics_section([logging([{"x": 1.0}, {"x": "skipped"}, {"x": 2.0}])]))
    assert "not drawn: 1 text" in page.text


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


def test_every_loop_of_a_run_is_a_curve_of_its_own():
    losses = [[4.0, 3.0, 2.0], [5.0, 1.0], [6.0, 5.0, 4.0, 3.0]]
    for between, x in (
        ([], [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
        ([None], [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
        ([None, 0, 1, None], [[0, 1, 2], [5, 6], [9, 10, 11, 12]]),  # rounds of loops that log nothing count too
    ):
        page = Page(metrics_section([of_loops(losses, between)]))
        titles = [words for words in page.words if words.startswith("FedPCA at ")]
        each = [
            f"FedPCA at {i}: {y:g}" for some, ys in zip(x, losses, strict=True) for i, y in zip(some, ys, strict=True)
        ]
        assert titles == each
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
    assert "a curve for each of the loops of a run" in page.text
    assert "round" in page.words
    assert "call" not in page.text
