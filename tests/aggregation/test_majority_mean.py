"""The mean of the values near a majority: near one half, and with copies of an honest value."""

from __future__ import annotations

import numpy as np

from fedspan.aggregation import GeometricMedian, MajorityMean


def test_copies_of_an_honest_value_count_by_their_number():
    """Seven of 18 sites repeat what one honest site sends: the geometric median becomes that value."""
    honest = np.random.default_rng(0).normal(size=(11, 200))
    values = np.vstack([honest, np.tile(honest[0], (7, 1))])
    unit = np.linalg.norm(honest[0])
    assert np.linalg.norm(GeometricMedian()(values).value) > 0.9 * unit
    assert np.linalg.norm(MajorityMean()(values).value) < 0.55 * unit


def test_the_bound_does_not_grow_towards_one_half():
    """Nine of 19 values agree far away, at any distance."""
    honest = np.random.default_rng(1).normal(size=(10, 50))
    radius = np.linalg.norm(honest - honest[0], axis=1).max()
    for away in (0.5, 1.0, 1.5, 3.0, 1e3):
        values = np.vstack([honest, np.tile(np.eye(50)[0] * away * radius, (9, 1))])
        assert np.linalg.norm(MajorityMean()(values).value - honest[0]) <= 4.0 * radius
    assert MajorityMean()(values).weights[10:].sum() == 0.0
