"""Landmarks and neighbours by torch tensors, on the processor here: the same as by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan.errors import InputError
from fedspan.landmarks.parts import kernel_pull as rows_pull
from fedspan.landmarks.parts import posted_rows
from fedspan.linalg.kernels import neighbors
from tests.packages import needs

pytestmark = needs("torch")


def three_groups(n=120):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)) + 8 * np.eye(4)[np.arange(n) % 3], np.arange(n) % 5


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("settings", [{}, {"local_steps": 2}, {"upload": "landmarks"}], ids=["one", "two", "landmarks"])
def test_landmarks_are_the_same_on_a_device(precision, settings):
    X, sites = three_groups()
    here = fs.FedLandmarks(10, rounds=5, precision=precision, random_state=0, **settings).fit(X, sites=sites)
    there = fs.FedLandmarks(10, rounds=5, precision=precision, random_state=0, device="cpu", **settings).fit(
        X, sites=sites
    )
    near = 1e-4 if precision == "single" else 1e-9
    np.testing.assert_allclose(there.landmarks_, here.landmarks_, atol=near)
    assert there.mmd2_ == pytest.approx(here.mmd2_, rel=1e-3)


def test_rows_that_are_not_kept_go_to_the_device_in_batches(monkeypatch):
    X, sites = three_groups()
    expected = fs.FedLandmarks(10, rounds=3, random_state=0).fit(X, sites=sites)
    monkeypatch.setattr(rows_pull, "_KEPT_BYTES", 0)
    monkeypatch.setattr(rows_pull, "_BATCH_ROWS", 7)
    found = fs.FedLandmarks(10, rounds=3, random_state=0, device="cpu").fit(X, sites=sites)
    np.testing.assert_allclose(found.landmarks_, expected.landmarks_, atol=1e-9)


def test_noise_is_the_same_on_a_device():
    X, sites = three_groups()
    privacy = fs.privacy.GaussianGradient(8.0, 1e-5)
    runs = [
        fs.FedLandmarks(10, rounds=3, random_state=0, device=device, privacy=privacy).fit(X, sites=sites)
        for device in (None, "cpu")
    ]
    # the questions differ by the device they name, and so do their noises
    assert runs[0].privacy_.epsilon == runs[1].privacy_.epsilon
    assert np.isfinite(runs[1].landmarks_).all()


def test_sites_without_the_device_use_numpy(monkeypatch):
    X, sites = three_groups()
    expected = fs.FedLandmarks(10, rounds=3, random_state=0).fit(X, sites=sites)
    monkeypatch.setattr(rows_pull, "device_here", lambda device: None)
    found = fs.FedLandmarks(10, rounds=3, random_state=0, device="cpu").fit(X, sites=sites)
    np.testing.assert_array_equal(found.landmarks_, expected.landmarks_)


def test_the_search_runs_where_it_is_told(monkeypatch):
    asked = []
    real = neighbors.to_device
    monkeypatch.setattr(neighbors, "to_device", lambda array, device: (asked.append(device), real(array, device))[1])
    monkeypatch.setattr(posted_rows, "neighbor_hits", lambda *args, **told: (1.0, 1))  # which sites count by numpy
    X, sites = three_groups()
    model = fs.FedSpectralClustering(3, n_landmarks=30, random_state=0, device="cpu").fit(X, sites=sites)
    assert set(asked) == {"cpu"}
    assert model.run_.metric("device") == ["cpu"]
    assert model.run_.metric("search") == ["exact"]
    assert adjusted_rand_score(model.labels_, np.arange(120) % 3) == 1.0


@pytest.mark.parametrize("face", ["FedTSNE", "FedUMAP", "FedSpectralClustering"])
def test_devices_that_cannot_work_are_refused(face):
    X, sites = three_groups()
    first = {"n_clusters": 3} if face == "FedSpectralClustering" else {}
    with pytest.raises(InputError, match="device='no such' is not available"):
        getattr(fs, face)(**first, device="no such").fit(X, sites=sites)
    with pytest.raises(InputError, match="neighbors='descent' runs on the processor alone"):
        getattr(fs, face)(**first, device="cpu", neighbors="descent").fit(X, sites=sites)
