from __future__ import annotations

import math

from fedspan.report.charts.forest_chart import forest_chart

from .report_reading import Page


def test_every_interval_has_its_line_and_what_is_not_finite_has_none():
    chart = forest_chart(["age", "dose"], [(1.0, 0.5, 1.5), (math.nan, math.nan, math.nan)], label="x", at=0.0)
    Page(chart)
    assert chart.count("<rect") == 2
    assert "age: 1 (0.5 to 1.5)" in chart
    assert "dose" in chart
