"""Settings of FedDL that depend on the data: landmarks by columns, rounds until MMD^2 settles."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts.feddl_settings import FedDLSettings, fixed_settings, settled


def test_landmarks_by_the_number_of_columns():
    chosen = FedDLSettings("auto", "auto")
    assert [chosen.landmarks_for(columns) for columns in (2, 40, 784)] == [50, 80, 500]
    assert FedDLSettings(7).landmarks_for(40) == 7
    assert fixed_settings({"n_landmarks": "auto", "rounds": "auto", "gamma": 2.0}) == {
        "n_landmarks": 500,
        "rounds": 50,
        "gamma": 2.0,
    }


@pytest.mark.parametrize("name", ["n_landmarks", "rounds"])
def test_other_words_are_refused(name):
    with pytest.raises(InputError, match=f"{name}='many' must be .*or 'auto'"):
        FedDLSettings(**{name: "many"}).completed(0.9, 0)


def test_rounds_end_when_mmd2_has_settled():
    assert not settled([1.0, 0.2])
    assert not settled([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    assert settled([1.0, 0.2, 0.19, 0.21, 0.19, 0.2, 0.19])
    X = np.random.default_rng(0).normal(size=(300, 3))
    fed = fs.federate(X, sites=np.arange(300) % 3)
    with fed.begin("run", seed=0) as run:
        found = feddl(run, n_landmarks=20, rounds="auto")
    followed = run.record.metric("mmd2")
    assert found.rounds == len(followed) - 1 < 50
    assert str(run.record.stopped).startswith("MMD^2 has settled at")
    assert min(followed) < 0.1 * followed[0]
    with fed.begin("run", seed=0) as run:  # without MMD^2 nothing can settle
        assert feddl(run, n_landmarks=5, rounds="auto", n_frequencies=0).rounds == 50
