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


def test_pictures_with_one_frame_can_be_compared():
    first, second = np.zeros((1, 2)), np.array([[1.0, 1.0]])
    frame = np.concatenate([first, second])
    drawn = [still_map(places, np.zeros(1), label="one of two", within=frame) for places in (first, second)]
    assert 'd="M8 352h0"' in drawn[0]  # bottom left
    assert 'd="M352 8h0"' in drawn[1]  # top right
