"""Coordinates of long vectors about one of them."""

from __future__ import annotations

import numpy as np

from fedspan.linalg.medians import centred_points as centred


def test_coordinates_about_a_reference_by_hand():
    """The median is within 1.5 of the first: in units of 2, and what is more than 2^100 times as far is pulled in."""
    points = np.array([[0.0], [1.5], [2.0**50], [2.0**400]])
    frame = centred.frame_about(points, np.array([1.0, 3.0, 0.0, 0.0]), 0)
    assert frame.row_scale.tolist() == [0.5, 0.5, 2.0**-51, 2.0**-401]
    assert frame.stretch.tolist() == [1.0, 1.0, 2.0**50, 2.0**100]
    assert frame.shrink.tolist() == [1.0, 1.0, 1.0, 2.0**-300]
    np.testing.assert_array_equal(np.abs(frame.coordinates).ravel(), [0.0, 0.75, 2.0**49, 2.0**99])
    near = centred.frame_about(points[:3], np.ones(3), 1)  # where nothing is far or tiny all is as it was
    assert near.coordinates.ravel().tolist() == [-1.5, 0.0, 2.0**50 - 1.5]
    assert {*near.row_scale, *near.stretch, *near.shrink} == {1.0}
