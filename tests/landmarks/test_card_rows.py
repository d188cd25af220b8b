"""What sites compute on a device, here torch on the processor: the same as with numpy."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances, neighbor_hits
from fedspan.landmarks.parts import kernel_pull
from tests.landmarks.wide_rows import federation, wide
from tests.packages import needs

pytestmark = needs("torch")

QUICK = {"n_landmarks": 20, "rounds": 5, "precision": "double"}


@pytest.mark.parametrize("reduce", [None, 6, "auto"])
def test_landmarks_and_distances_are_the_same(reduce, monkeypatch):
    monkeypatch.setattr(kernel_pull, "_CARD_ROWS", 33)  # several blocks
    found = {}
    for device in (None, "cpu"):
        with federation().begin("run", seed=0) as run:
            landmarks = feddl(run, **QUICK, reduce=reduce, device=device)
            posted = landmark_distances(run, landmarks=landmarks, device=device)
            how = {"method": "coordinates", "residuals": False, "precision": "single", "device": device}
            hits = neighbor_hits(run, landmarks=landmarks, **how)
        found[device] = landmarks, np.concatenate(list(posted.values())), hits
    (plain, B, hits), (there, D, same) = found.values()
    np.testing.assert_allclose(there.points, plain.points, atol=1e-5 * plain.scale)
    assert there.mmd2 == pytest.approx(plain.mmd2, rel=1e-4)
    np.testing.assert_allclose(D, B, rtol=1e-4)
    assert hits == same


def test_rows_stay_on_the_device_and_large_sites_move_theirs_in_blocks(monkeypatch):
    fed = federation()
    with fed.begin("run", seed=0) as run:
        kept = feddl(run, **QUICK, device="cpu")
    monkeypatch.setattr(kernel_pull, "CARD_BYTES", 0)
    with federation().begin("run", seed=0) as run:
        moved = feddl(run, **QUICK, device="cpu")
    np.testing.assert_allclose(moved.points, kept.points, atol=1e-9 * kept.scale)


def test_parts_of_the_distances_fit_a_message():
    with federation(n=600).begin("run", seed=0) as run:
        landmarks = feddl(run, **QUICK, device="cpu")
        whole = landmark_distances(run, landmarks=landmarks, device="cpu")
    with federation(n=600, policy=fs.Policy(max_bytes=25_000)).begin("run", seed=0) as run:  # of 156 rows
        parts = landmark_distances(run, landmarks=landmarks, device="cpu")
    assert len(run.record.calls) == 2
    for name in whole:
        np.testing.assert_array_equal(parts[name], whole[name])


def test_values_that_are_not_finite_are_refused_by_name():
    X, groups = wide()
    X[3, 5] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinity"), fs.federate(X, sites=groups).begin("run") as run:
        feddl(run, **QUICK, device="cpu")


def test_a_map_on_a_device_is_as_good_and_repeatable():
    X, groups = wide(400)
    maps = [fs.FedUMAP(n_epochs=60, random_state=0, device="cpu").fit(X, sites=groups) for _ in range(2)]
    np.testing.assert_array_equal(maps[0].embedding_, maps[1].embedding_)
    near = np.linalg.norm(maps[0].embedding_[:, None] - maps[0].embedding_, axis=2).argsort(axis=1)[:, 1:6]
    assert np.mean(groups[near] == groups[:, None]) > 0.99
