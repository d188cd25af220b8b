"""Maps as still pictures."""

from __future__ import annotations

import numpy as np

from fedspan.report.charts.still_map import density_map, still_map


def test_what_is_not_finite_is_not_drawn():
    body = density_map(np.eye(3), (0.0, 1.0, 0.0, 1.0), np.array([[np.nan, 0.0], [0.5, 0.5]]))
    assert body.count("h0") == 1
    assert density_map(np.zeros((2, 2)), (0.0, 1.0, 0.0, 1.0), np.zeros((0, 2))).count("<rect") == 0


def test_groups_of_points_have_a_path_each():
    drawn = still_map(np.eye(2), np.array([0, 1]), label="two points")
    assert drawn.count("<path") == 2
    assert 'd="M8 8h0"' in drawn  # (0, 1) is at the top left
