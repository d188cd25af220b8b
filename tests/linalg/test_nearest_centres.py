"""Nearest centres, and means without their last bits."""

from __future__ import annotations

import numpy as np

from fedspan.linalg.kernels.nearest_centres import rounded_mean


def test_a_rounded_mean_by_hand():
    """A deviation of 8 to 16 has the unit 2^(3 - 8) = 1 / 32; without one the mean stays as it is."""
    found = rounded_mean(np.array([1.03, 1.03, -0.99]), np.array([64.0, 0.0, 225.0]))
    assert found.tolist() == [33 / 32, 1.03, -1.0]
