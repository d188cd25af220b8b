"""Charts with axes: geometry on cases computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.report.charts.axes import drawable
from fedspan.report.charts.line_charts import Line, bar_chart, histogram, line_chart, thinned
from fedspan.report.charts.svg import HEIGHT, WIDTH

from .report_reading import Page

finite = st.floats(allow_nan=False, allow_infinity=False).filter(drawable)


def places(page: Page) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for a in page.all("polyline") for pair in a["points"].split()]


def test_bar_twice_as_tall_for_twice_the_value():
    page = Page(bar_chart([1.0, 2.0, 4.0], ["a", "b", "c"], label="x", x_label="y"))
    heights = [float(a["height"]) for a in page.all("rect")]
    # The axis goes from 0 to 4 over the 168 pixels between 12 from the top and 40 from the bottom.
    assert heights == [42.0, 84.0, 168.0]
    bottoms = [float(a["y"]) + float(a["height"]) for a in page.all("rect")]
    assert bottoms == [180.0] * 3


def test_negative_bar_hangs_from_zero():
    page = Page(bar_chart([2.0, -2.0], ["a", "b"], label="x", x_label="y"))
    up, down = page.all("rect")
    assert float(up["y"]) + float(up["height"]) == float(down["y"])
    assert up["height"] == down["height"]


def test_bars_do_not_overlap_and_stay_inside():
    page = Page(bar_chart([1.0] * 40, [str(i + 1) for i in range(40)], label="x", x_label="y"))
    lefts = np.array([float(a["x"]) for a in page.all("rect")])
    widths = np.array([float(a["width"]) for a in page.all("rect")])
    assert np.all(lefts[1:] > (lefts + widths)[:-1])
    assert lefts[0] > 0
    assert (lefts + widths)[-1] < WIDTH
    texts = [float(a["x"]) for a in page.all("text", "mid")][:-1]  # the last is the axis' name
    assert np.min(np.diff(texts)) > 2 * 6.3


def test_line_over_bars_is_drawn_at_their_middles():
    page = Page(bar_chart([3.0, 1.0], ["a", "b"], label="x", x_label="y", over=[3.0, 4.0]))
    middles = [float(a["x"]) + float(a["width"]) / 2 for a in page.all("rect")]
    assert [x for x, _ in places(page)] == pytest.approx(middles, abs=0.02)
    assert [y for _, y in places(page)] == [54.0, 12.0]


def test_value_that_is_not_finite_has_no_bar():
    page = Page(
        bar_chart([1.0, math.nan, math.inf], ["a", "b", "c"], label="x", x_label="y", over=[1.0, math.nan, 2.0])
    )
    assert len(page.all("rect")) == 1
    assert len(places(page)) == 2


def test_line_points_by_hand():
    page = Page(line_chart([Line("l", [0, 1, 2], [0.0, 1.0, 4.0])], label="x", x_label="round", zero=True))
    (x0, y0), (x1, y1), (x2, y2) = places(page)
    assert (y0, y1, y2) == (180.0, 138.0, 12.0)
    assert x2 - x1 == pytest.approx(x1 - x0, abs=0.02)
    assert x2 == WIDTH - 14


def test_rising_values_give_rising_lines():
    y = np.cumsum(np.random.default_rng(0).random(50)).tolist()
    drawn = np.array(places(Page(line_chart([Line("l", list(range(50)), y)], label="x", x_label="round"))))
    assert np.all(np.diff(drawn[:, 0]) > 0)
    assert np.all(np.diff(drawn[:, 1]) < 0)  # SVG counts from the top
    assert drawn.min() >= 0
    assert drawn[:, 1].max() <= HEIGHT


def test_dots_only_where_points_are_few():
    few = line_chart([Line("l", list(range(30)), [1.0] * 30)], label="x", x_label="round")
    many = line_chart([Line("l", list(range(31)), [1.0] * 31)], label="x", x_label="round")
    assert len(Page(few).all("circle")) == 30
    assert Page(many).all("circle") == []


def test_lines_of_different_series_have_different_classes():
    lines = [Line("a", [0, 1], [1, 2], colour=0), Line("b", [0, 1], [2, 3], colour=6)]
    page = Page(line_chart(lines, label="x", x_label="round"))
    assert [a["class"] for a in page.all("polyline")] == ["line s0", "line s6"]


def test_marks_have_their_text_where_there_is_room():
    line = Line("l", list(range(101)), [1.0] * 101)
    page = Page(line_chart([line], label="x", x_label="calls", marks=[(0, "first"), (50, "second"), (99, "third")]))
    assert "second" in page.words
    assert [words for words in page.words if words == "third"] == ["third"]  # as a title alone
    assert len(page.all("path", "mark")) == 2  # none over the axis itself
    assert len(page.all("text", "mark")) == 2


def test_whole_values_get_whole_ticks():
    page = Page(line_chart([Line("l", [0, 1], [8, 10])], label="x", x_label="round"))
    assert {"8", "9", "10"} <= set(page.words)
    assert "8.5" not in page.words


def test_texts_on_the_axis_can_be_chosen():
    page = Page(line_chart([Line("l", [0, 1], [0, 4])], label="x", x_label="round", show=lambda v: f"{v:g} apples"))
    assert "4 apples" in page.words


@given(st.lists(finite, min_size=2, max_size=20))
def test_every_point_of_any_line_is_inside(values):
    page = Page(line_chart([Line("l", list(range(len(values))), values)], label="x", x_label="round"))
    drawn = np.array(places(page))
    assert np.all((drawn >= 0) & (drawn <= [WIDTH, HEIGHT]))


@given(st.lists(finite, min_size=1, max_size=300), st.integers(4, 50))
def test_thinned_lines_keep_ends_and_peaks(y, most):
    x = list(range(len(y)))
    few_x, few_y = thinned(x, y, most)
    assert len(few_x) == len(few_y) <= max(most, min(most, len(y)))
    assert few_x == sorted(set(few_x))
    assert all(y[i] == value for i, value in zip(few_x, few_y, strict=True))
    assert (few_x[0], few_x[-1]) == (0, len(y) - 1)
    assert (min(few_y), max(few_y)) == (min(y), max(y))


def test_thinned_lines_by_hand():
    found = thinned(range(9), [0, 0, 9, 0, 0, 0, -9, 0, 0], 6)
    assert found == ([0, 1, 2, 4, 6, 8], [0, 0, 9, 0, -9, 0])


def test_the_area_of_a_histogram_s_bar_is_its_share():
    edges, shares = np.array([0.0, 1.0, 3.0, 4.0]), np.array([0.0, 0.5, 1.0, 1.0])
    page = Page(histogram(edges, shares, label="x", x_label="score", mark=1.0, marked="threshold"))
    low, high = page.all("rect")  # the last one is empty
    assert float(low["height"]) == pytest.approx(2 * float(high["height"]), abs=0.02)
    assert (low["class"], high["class"]) == ("s0", "s6")
    assert "threshold" in page.words
    assert "1 to 3: 50 %" in page.words
