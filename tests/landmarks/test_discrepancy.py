"""MMD^2 as the coordinator follows it, while sites leave and return."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.parts import discrepancy as discrepancy_module
from fedspan.linalg import mmd2
from tests.landmarks.landmark_examples import blobs, leaves


@pytest.mark.parametrize("at", [5, 19, 51])
def test_mmd2_is_that_of_the_remaining_rows(at):
    X, labels = blobs()
    X[labels == 2] += 20.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = leaves(fs.federate(X, sites=labels, seed=1), "2", at=at).run(feddl, n_landmarks=40)
    remaining = mmd2(X[labels != 2], found.points, found.gamma)
    assert found.mmd2 == pytest.approx(remaining, rel=0.3)
    assert found.mmd2 != pytest.approx(mmd2(X, found.points, found.gamma), rel=0.3)


def test_a_site_that_misses_a_single_round_is_still_followed():
    X, labels = blobs()
    fed = leaves(fs.federate(X, sites=labels, seed=1), "2", at=8, back=9)
    with fed.begin("run") as running:
        found = feddl(running, n_landmarks=40, rounds=20)
    steps = [call.step for call in running.record.calls]
    assert steps.count("landmarks.characteristic") == 1
    assert found.mmd2 == pytest.approx(mmd2(X, found.points, found.gamma), rel=0.3)


def test_sums_of_the_remaining_sites_use_other_directions(monkeypatch):
    X, labels = blobs()
    seen, drawn = [], discrepancy_module.frequencies

    def watched(*args):
        seen.append(drawn(*args))
        return seen[-1]

    monkeypatch.setattr(discrepancy_module, "frequencies", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves(fs.federate(X, sites=labels, seed=1), "2", at=6).run(feddl, n_landmarks=10, rounds=10)
    assert len(seen) == 2
    assert not np.isin(seen[0], seen[1]).any()


def test_following_mmd2_can_be_left_out():
    X, labels = blobs()
    with fs.federate(X, sites=labels, seed=1).begin("run") as fed:
        found = feddl(fed, n_landmarks=12, rounds=2, n_frequencies=0)
    assert np.isnan(found.mmd2)
    assert len(fed.record.calls) == 3
    assert fed.record.metric("mmd2") == []
