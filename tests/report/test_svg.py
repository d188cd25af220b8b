"""Figures and the elements of charts."""

from __future__ import annotations

from fedspan.report.charts.line_charts import line_chart
from fedspan.report.charts.svg import figure, pixels, text

from .report_reading import Page


def test_figure_has_title_key_and_remark():
    page = Page(
        figure("Title", line_chart([], label="none", x_label="x"), over="Model", remark="a remark", key=[(3, "third")])
    )
    assert page.text.startswith("Model Title third")
    assert page.text.endswith("a remark")
    assert page.all("li", "s3")


def test_places_are_in_hundredths_without_trailing_zeros():
    assert (pixels(1.0), pixels(2.345678), pixels(-0.5)) == ("1", "2.35", "-0.5")


def test_text_that_was_cut_has_a_title():
    assert "<title>abcdef</title>" in text(0, 0, "abcdef", most=4)
    assert "abc…" in text(0, 0, "abcdef", most=4)
    assert "<title>" not in text(0, 0, "abcd", most=4)
