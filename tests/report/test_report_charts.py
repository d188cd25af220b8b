"""Charts: geometry on cases computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_reading import Page

from fedspan.report.charts.axes import (
    LARGEST,
    Scale,
    drawable,
    log_ticks,
    number_with,
    span,
    tick_texts,
    ticks,
    up_to_ticks,
)
from fedspan.report.charts.bars_and_cells import heat_map, row_bars
from fedspan.report.charts.line_charts import Line, bar_chart, line_chart
from fedspan.report.charts.svg import HEIGHT, WIDTH, figure
from fedspan.report.charts.thinning import thinned

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
    page = Page(bar_chart([3.0, 1.0], ["a", "b"], label="x", x_label="y", line=[3.0, 4.0]))
    middles = [float(a["x"]) + float(a["width"]) / 2 for a in page.all("rect")]
    assert [x for x, _ in places(page)] == pytest.approx(middles, abs=0.02)
    assert [y for _, y in places(page)] == [54.0, 12.0]


def test_value_that_is_not_finite_has_no_bar():
    page = Page(
        bar_chart([1.0, math.nan, math.inf], ["a", "b", "c"], label="x", x_label="y", line=[1.0, math.nan, 2.0])
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


def test_lying_bars_share_one_scale():
    page = Page(row_bars(["a", "b"], [[10, 30], [20, 0]], label="x", show=str, colours=[0, 6]))
    parts = [(float(a["x"]), float(a["width"])) for a in page.all("rect")]
    assert parts == [(0, 90), (90, 270), (0, 180), (180, 0)]
    assert "40" in page.words
    assert Page(row_bars(["a"], [[0]], label="x", show=str, colours=[0])).all("rect")[0]["width"] == "0"


def test_heat_map_shades_by_size_and_colours_by_sign():
    page = Page(heat_map(np.array([[1.0, -0.5], [0.0, np.nan]]), ["r", "s"], ["1", "2"], label="x"))
    cells = page.all("rect")
    assert [(a["class"], a["fill-opacity"]) for a in cells] == [
        ("plus", "0.750"),
        ("minus", "0.375"),
        ("minus", "0.000"),
    ]
    assert {"1.00", "−0.50", "0.00"} <= set(page.words)


def test_heat_map_without_any_value_draws_no_cell():
    assert Page(heat_map(np.full((1, 1), np.nan), ["r"], ["1"], label="x")).all("rect") == []


def test_long_names_are_cut_and_told_in_full():
    name = "a_feature_with_a_very_long_name"
    page = Page(heat_map(np.ones((1, 1)), [name], ["1"], label="x"))
    assert "a_feature_with_a…" in page.words
    assert name in page.words  # the title


def test_figure_has_title_key_and_remark():
    page = Page(
        figure("Title", line_chart([], label="none", x_label="x"), over="Model", remark="said", key=[(3, "third")])
    )
    assert page.text.startswith("Model Title third")
    assert page.text.endswith("said")
    assert page.all("li", "s3")


@given(finite, finite, st.booleans())
def test_span_and_ticks_hold_for_any_values(a, b, whole):
    low, high = span([a, b])
    assert low <= min(a, b)
    assert high >= max(a, b)
    assert low < high
    inside = ticks(low, high, 5, whole=whole)
    slack = 1e-6 * (high - low)
    assert len(inside) <= 6
    assert inside == sorted(set(inside))
    assert all(low - slack <= tick <= high + slack for tick in inside)
    assert len(tick_texts(inside)) == len(inside)
    if whole:
        assert all(tick == round(tick) for tick in inside)
    around = up_to_ticks(low, high, 5)
    assert around[0] <= low + slack
    assert around[-1] >= high - slack
    assert len(around) <= 8


@given(st.lists(finite, min_size=2, max_size=20))
def test_every_point_of_any_line_is_inside(values):
    page = Page(line_chart([Line("l", list(range(len(values))), values)], label="x", x_label="round"))
    drawn = np.array(places(page))
    assert np.all((drawn >= 0) & (drawn <= [WIDTH, HEIGHT]))


def test_scale_by_hand():
    assert Scale(0, 10, 180, 12)(5) == 96
    assert Scale(0.01, 100, 0, 100, log=True)(1.0) == pytest.approx(50)
    assert not drawable(math.nan)
    assert not drawable(-math.inf)
    assert not drawable(LARGEST)


def test_ticks_by_hand():
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-3, 3, 3) == [-2, 0, 2]
    assert ticks(0, 2, 5, whole=True) == [0, 1, 2]
    assert up_to_ticks(0, 0.589, 4) == pytest.approx([0, 0.2, 0.4, 0.6])
    assert tick_texts([0.0, 0.2, 0.4]) == ["0", "0.2", "0.4"]
    assert tick_texts([0, 5000, 10000]) == ["0", "5\u202f000", "10\u202f000"]
    assert tick_texts([0, 2e9]) == ["0", "2×10⁹"]
    assert [value for value, _ in log_ticks(1e-12, 1.0, 4)] == pytest.approx([1e-12, 1e-9, 1e-6, 1e-3, 1])
    assert span([], zero=True) == (0.0, 1.0)
    assert span([0, 0], zero=True) == (0, 1)
    assert number_with(-0.001, 2) == "0.00"


@given(st.lists(finite, min_size=1, max_size=300), st.integers(4, 50))
def test_thinned_lines_keep_ends_and_peaks(y, most):
    x = list(range(len(y)))
    few_x, few_y = thinned(x, y, most)
    assert len(few_x) == len(few_y) <= max(most, min(most, len(y)))
    assert few_x == sorted(set(few_x))
    assert all(y[i] == value for i, value in zip(few_x, few_y, strict=True))
    assert (few_x[0], few_x[-1]) == (0, len(y) - 1)
    assert (min(few_y), max(few_y)) == (min(y), max(y))


def test_a_logarithmic_axis_of_less_than_two_powers_has_more_than_one_tick():
    assert [value for value, _ in log_ticks(2e-4, 2e-2)] == pytest.approx([1e-3, 1e-2])
    assert [text for _, text in log_ticks(3e-3, 3e-2)] == ["5 × 10⁻³", "10⁻²", "2 × 10⁻²"]
    assert [value for value, _ in log_ticks(0.21, 0.9)] == pytest.approx([0.5])
