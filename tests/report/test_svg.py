"""Figures and the elements of charts."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedspan.report.charts.bars_and_cells import heat_map, row_bars
from fedspan.report.charts.count_bars import count_bars
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.svg import LETTER, figure, pixels, text

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


COUNTS = np.array([3.0, np.nan, 12_000.0])
DRAWINGS = {
    "lines": line_chart([Line("a", [0.0, 1.0], [1.0, 2000.0], 0)], label="a", x_label="a long name of an axis"),
    "counts": count_bars(np.arange(4.0), COUNTS, (1.0, 0.0), label="counts", x_label="values"),
    "bars": row_bars(["a", "b", "c"], [[1], [2], [3]], label="bars", show=str),
    "cells": heat_map(np.ones((2, 3)), ["r", "s"], ["a", "b", "c"], label="cells"),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_all_words_and_shapes_are_inside_of_the_drawing(name):
    drawing = str(DRAWINGS[name])
    width, height = (float(size) for size in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing).groups())
    words = re.findall(r'<text class="([^"]*)" x="([-\d.]+)" y="([-\d.]+)">([^<]*)', drawing)
    assert words
    for kind, x, y, word in words:
        room = LETTER * len(word)
        left = float(x) - (room if "end" in kind else room / 2 if "mid" in kind else 0)
        assert -1 <= left <= left + room <= width + 1, word
        assert 0 < float(y) <= height, word
    found = re.findall(r'y="([-\d.]+)" width="[^"]*" height="([\d.]+)"', drawing)
    tops = [(float(y), float(size)) for y, size in found]
    for top, size in tops:
        assert 0 <= top <= top + size <= height
    lowest = max([float(y) for _, _, y, _ in words] + [top + size for top, size in tops])
    assert height - lowest < 40, "a drawing has no empty space below"
