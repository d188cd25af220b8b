"""Rules for fewer values than they were set up for."""

from __future__ import annotations

import numpy as np

from fedspan.aggregation import (
    ClipNorm,
    GeometricMedian,
    Krum,
    MedianOfMeans,
    MultiKrum,
    TrimmedMean,
)
from fedspan.aggregation.fewer_values import for_fewer_values, within_a_group


def test_the_rule_for_fewer_values_is_the_strictest_that_is_defined():
    """Every rule that was set up for nine values is defined for whatever is left, down to three."""
    rules = (MedianOfMeans(9), Krum(3), MultiKrum(3, 6), TrimmedMean(4), ClipNorm(TrimmedMean(4)), GeometricMedian())
    for rule in rules:
        assert for_fewer_values(rule, 9) is rule
        for count in range(3, 9):
            fitting = for_fewer_values(rule, count)
            assert np.isfinite(fitting(np.arange(float(count))).value)
    assert for_fewer_values(MultiKrum(2, 6), 7) == MultiKrum(2, 5)
    assert for_fewer_values(MultiKrum(2, 4), 7) == MultiKrum(2, 4)
    assert for_fewer_values(ClipNorm(TrimmedMean(4)), 7) == ClipNorm(TrimmedMean(3))
    none_left = [for_fewer_values(rule, 0) for rule in rules[:4]]  # the rule itself refuses them
    assert none_left == [MedianOfMeans(1), Krum(0), MultiKrum(0, 1), TrimmedMean(0)]


def test_a_group_may_hold_all_malicious_sites():
    assert within_a_group(Krum(20), 25, 100) == Krum(11)
    assert within_a_group(Krum(60), 25, 100) == Krum(60)  # it does not fit everybody, and refuses by itself
    assert within_a_group(Krum(2), 25, 100) == Krum(2)
