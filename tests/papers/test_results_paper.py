"""The parts of a reproduction: what is printed is what was given, and every point is drawn."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from fedspan.papers.results_paper import Bars, Chart, Clouds, Curves, Maps, Results, Table, Words, spread
from fedspan.report.charts.scatter_3d import cloud
from fedspan.report.charts.still_map import still_map


def test_curves_are_printed_between_their_points_and_end_where_they_end():
    curves = Curves("t", "x", {"a": ([0.0, 1.0], [0.0, 2.0]), "b": ([0.0, 4.0], [1.0, 1.0])}, "r", at=[0.5, 2.0])
    columns, rows = curves.printed()
    assert columns == ["x", "a", "b"]
    assert rows == [["0.5", "1.0000", "1.0000"], ["2", "", "1.0000"]]


def test_a_long_curve_is_drawn_with_few_points_that_keep_its_peak():
    x = np.arange(5000.0)
    y = np.where(x == 1234, 9.0, 1.0)
    drawn = Curves("t", "x", {"a": (x, y)}, "r", at=[0.0]).drawn()
    corners = re.search(r'<polyline[^>]* points="([^"]*)"', drawn)[1].split()
    assert len(corners) <= 400
    heights = [float(corner.split(",")[1]) for corner in corners]
    assert min(heights) < max(heights) - 100  # the peak, far above the rest


def test_fractions_get_fractional_ticks_and_a_logarithmic_axis_powers_of_ten():
    straight = Curves("t", "rate", {"a": ([0.0, 0.5, 1.0], [0.0, 3.0, 4.0])}, "r", at=[0.0]).drawn()
    assert ">0.2<" in straight
    powers = Chart("t", "rho", [0.01, 1.0, 100.0], {"a": [1.0, 2.0, 3.0]}, "r", log_x=True).drawn()
    places = [float(x) for x in re.findall(r'<circle[^>]* cx="([^"]*)"', powers)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.02)
    assert "10⁻²" in powers
    assert "10²" in powers


def test_every_point_of_a_cloud_is_in_the_picture_and_equal_columns_do_no_harm():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(20, 3)), np.ones((5, 3))]
    drawn = cloud(groups, ("a<b", "y", "z"), label="l")
    assert drawn.count('class="s0"') == 20
    assert drawn.count('class="s1"') == 5
    assert "a&lt;b" in drawn
    x, y = (np.array(re.findall(rf'<circle[^>]* {name}="([^"]*)"', drawn), dtype=float) for name in ("cx", "cy"))
    assert x.min() >= 0
    assert x.max() <= 360
    assert y.min() >= 0
    assert y.max() <= 220
    assert "nan" not in cloud([np.zeros((2, 3))], ("x", "y", "z"), label="flat")


def test_every_point_of_a_map_is_in_its_picture_right_side_up():
    drawn = still_map(np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 1.0]]), np.array([0, 11, 1]), label="a<b")
    assert 'class="dots few s0" d="M8 352h0"' in drawn  # the origin, below
    assert 'class="dots few s1" d="M180 180h0M352 180h0"' in drawn  # two groups with one colour: half as high as wide
    assert "a&lt;b" in drawn
    assert "nan" not in still_map(np.zeros((2, 2)), np.zeros(2), label="one place")


def test_maps_stand_side_by_side_under_their_names():
    part = Maps("t", [0, 1], {"pooled": [[0, 0], [1, 1]], "federated": [[1, 0], [0, 1]]}, "r")
    assert part.printed()[1] == [["pooled", "2"], ["federated", "2"]]
    drawn = part.drawn()
    assert drawn.count("<svg") == 2
    assert "<figcaption>federated" in drawn


def test_clouds_are_printed_by_their_medians():
    part = Clouds("t", ("x", "y", "z"), {"before": {"normal": [[0, 1, 2], [2, 3, 4], [9, 9, 9]]}}, "r")
    assert part.printed()[1] == [["before", "normal", "2", "3", "4"]]


def test_all_parts_are_printed_and_saved(tmp_path, capsys):
    parts = [
        Table("Table T", ["a"], [["1 [0.3]"]], "remark"),
        Bars("Bars B", "class", {"normal": 3.0, "dos": 5.0}, "remark"),
        Clouds("Clouds C", ("x", "y", "z"), {"p": {"g": [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]}}, "remark"),
        Words("Words W", ["First <b>.", "Second."]),
    ]
    results = Results("title", "lead", parts)
    results.print()
    printed = capsys.readouterr().out
    page = results.save(tmp_path).read_text(encoding="utf-8")
    for part in parts:
        assert part.title in printed
        assert part.title in page
    assert "First &lt;b&gt;." in page
    assert "Second." in printed
    assert "1 [0.3]" in printed  # brackets are not markup
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert saved["parts"][1]["values"] == {"normal": 3.0, "dos": 5.0}


def test_small_values_of_logarithmic_curves_are_told_from_zero():
    given = {"a": ([0.0, 1.0], [1e-2, 2e-5])}
    assert Curves("t", "x", given, "r", at=[0.0, 1.0], log=True).printed()[1] == [["0", "0.0100"], ["1", "2.0e-05"]]
    assert Curves("t", "x", given, "r", at=[1.0]).printed()[1] == [["1", "0.0000"]]


def test_charts_are_saved_as_drawings(tmp_path, capsys):
    results = Results("A paper", "What was found.")
    results.parts.append(Table("T", ["method", "error"], [["ours", spread([0.1, 0.2])]], "2 seeds"))
    results.parts.append(Chart("C", "sites", [1, 2], {"ours": [0.1, 0.2]}, "2 seeds", log=True))
    results.print()
    shown = capsys.readouterr().out
    assert "0.150 ± 0.050" in shown
    page = results.save(tmp_path / "out").read_text()
    assert "0.150 ± 0.050" in page
    assert page.count("<svg") == 1
    assert (tmp_path / "out" / "results.json").exists()
