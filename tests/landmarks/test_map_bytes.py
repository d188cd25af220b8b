"""The bytes of a run, estimated before its rounds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts.map_bytes import warn_of_traffic
from tests.landmarks.test_principal_view import learned
from tests.landmarks.wide_rows import federation


@pytest.mark.parametrize("settings", [{}, {"reduce": 10}, {"reduce": 10, "precision": "double", "n_frequencies": 0}])
def test_the_estimate_is_close_to_the_bytes_of_the_run(settings):
    _, record = learned(federation(), rounds=10, **settings)
    assert record.metric("estimated_bytes")[0] == pytest.approx(record.bytes_up + record.bytes_down, rel=0.1)


def test_a_run_that_moves_more_than_the_rows_warns():
    with pytest.warns(UserWarning, match=r"will move about 4\d\.?\d* MB .* the rows themselves have 0\.0768 MB: fewer"):
        learned(federation(), n_landmarks=500, rounds=15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_traffic(2**22, 10_000, 500)
        warn_of_traffic(2**19, 10, 5)


def test_a_warning_comes_before_the_axes_are_learned():
    X = np.random.default_rng(0).normal(size=(60, 400))
    fed = fs.federate(X, sites=np.arange(60) % 3)
    calls = []
    with warnings.catch_warnings(), fed.begin("run") as run:
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="will move about"):
            feddl(run, reduce="auto", n_landmarks=10)
        calls += [call.step for call in run.record.calls]
    assert set(calls) <= {"sums.columns", "sums.moments"}
