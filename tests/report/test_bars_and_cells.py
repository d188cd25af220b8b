"""Horizontal bars, shaded cells and images."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.report.charts.bars_and_cells import heat_map, image_tiles, row_bars

from .report_reading import Page


def test_horizontal_bars_share_one_scale():
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


def test_long_names_are_cut_and_have_a_title():
    name = "a_feature_with_a_very_long_name"
    page = Page(heat_map(np.ones((1, 1)), [name], ["1"], label="x"))
    assert "a_feature_with_a…" in page.words
    assert name in page.words  # the title


def test_cells_are_shaded_by_one_array_and_hold_the_other():
    page = Page(heat_map(np.array([[1.0, -1.0]]), ["r"], ["1", "2"], label="x", values=np.array([[7.0, 3.0]])))
    assert [a["class"] for a in page.all("rect")] == ["plus", "minus"]
    assert {"7.00", "3.00", "r, 1: 7", "r, 2: 3"} <= set(page.words)


def test_images_have_a_path_a_shade_and_signs_a_colour_each():
    image = np.array([1.0, -1.0, 0.0, 0.5])
    signed = Page(image_tiles([("one", image)], (2, 2), label="x", signed=True))
    assert [a["class"] for a in signed.all("g")] == ["tile", "plus", "minus"]
    assert [a["fill-opacity"] for a in signed.all("path")] == ["0.5", "1", "1"]
    assert "one" in signed.words
    plain = Page(image_tiles([("", image)] * 6, (2, 2), label="x", shades=(0.0, 2.0), columns=5))
    assert [a["fill-opacity"] for a in plain.all("path")] == ["0.25", "0.5"] * 6
    lefts = [float(a["transform"].split("(")[1].split()[0]) for a in plain.all("g", "tile")]
    assert len(set(lefts)) == 5
    assert lefts[0] == lefts[5] == 0


def test_an_image_of_one_value_is_empty():
    assert Page(image_tiles([("", np.ones(4))], (2, 2), label="x")).all("path") == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pixels_that_are_not_finite_do_not_break_an_image(bad):
    assert "nan" not in image_tiles([("", np.array([bad, 1.0, 0.0, 0.5]))], (2, 2), label="x")
