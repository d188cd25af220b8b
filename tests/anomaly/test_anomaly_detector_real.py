"""FedAnomalyDetector on tables of ADBench (`tests.anomaly.adbench` has all of them, and more seeds)."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs

from .adbench import SMALL, means

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("normal", "least"), [(False, 0.87), (True, 0.92)])
def test_it_finds_what_pooled_detectors_find_on_small_tables(normal, least):
    auc, alarms = means(fs.FedAnomalyDetector, SMALL, (0,), normal)
    assert auc > least
    if normal:
        assert abs(np.mean(alarms) - 5.0) < 3.0
