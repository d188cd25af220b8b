"""Points in three dimensions: in the box, far ones first."""

from __future__ import annotations

import re

import numpy as np

from fedspan.report.charts.scatter_3d import cloud


def test_far_points_are_drawn_first_whatever_their_group():
    near, far = [[0.0, 0.0, 0.0], [1.0, 0.1, 1.0]], [[0.5, 1.0, 0.5]]
    drawn = cloud([near, far], ("x", "y", "z"), label="points")
    assert re.findall(r'<circle class="(s\d)"', drawn) == ["s1", "s0", "s0"]


def test_points_fill_the_box_and_each_axis_has_its_range():
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(200, 3)) * [1, 10, 100]
    points[0], points[1] = 0, [1, 10, 100]
    drawn = cloud([points], ("a", "b", "c"), label="points")
    for text in ("a 0 to 1", "b 0 to 10", "c 0 to 100"):
        assert text in drawn
    x, y = (np.array(re.findall(rf'<circle[^>]* {name}="([^"]*)"', drawn), dtype=float) for name in ("cx", "cy"))
    assert x.min() > 0
    assert x.max() < 360
    assert y.min() > 0
    assert y.max() < 220
