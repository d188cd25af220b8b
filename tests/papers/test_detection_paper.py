"""The measures of detection, by hand and against all thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.papers.fedpca.detection_paper import detection, most_accurate_threshold, rates


def test_rates_by_hand():
    attack = np.array([0, 0, 0, 1, 1])
    found = rates(attack, np.array([True, False, False, True, False]))
    assert (found.accuracy, found.precision, found.recall) == (0.6, 0.5, 0.5)
    assert found.f1 == 0.5
    assert found.false_negative_rate == 0.5
    assert found.false_positive_rate == pytest.approx(1 / 3)
    nothing = rates(attack, np.zeros(5, dtype=bool))
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=30))
def test_no_threshold_is_more_accurate_than_the_most_accurate(rows):
    attack, anomaly = np.array(rows).T
    anomaly = anomaly.astype(float)
    best = np.mean((anomaly > most_accurate_threshold(attack, anomaly)) == attack)
    others = [np.mean((anomaly > at) == attack) for at in (-np.inf, *np.unique(anomaly))]
    assert best == max(others)


def test_the_honest_rates_use_the_threshold_and_the_best_use_the_labels():
    attack = np.array([0, 0, 1, 1])
    found = detection(attack, np.array([1.0, 2.0, 3.0, 4.0]), threshold=3.5)
    assert found.auc == 1.0
    assert found.honest.recall == 0.5
    assert found.best.accuracy == 1.0
