"""The search for neighbours: exact on a device, or by NN-descent."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

import fedspan as fs
from fedspan.errors import InputError
from fedspan.landmarks.parts import landmark_models, neighbor_search
from fedspan.linalg.kernels import neighbors
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import nearest
from tests.maps.blob_maps import accuracy, blobs
from tests.packages import needs


def three_groups(n=120):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)) + 8 * np.eye(4)[np.arange(n) % 3], np.arange(n) % 5


@needs("torch")
def test_the_search_runs_on_the_device(monkeypatch):
    used = []
    real = neighbors.to_device
    monkeypatch.setattr(neighbors, "to_device", lambda array, device: (used.append(device), real(array, device))[1])
    monkeypatch.setattr(landmark_models, "neighbor_hits", lambda *_, **__: (1.0, 1))  # counted at sites, by numpy
    X, sites = three_groups()
    model = fs.FedSpectralClustering(3, n_landmarks=30, random_state=0, device="cpu").fit(X, sites=sites)
    assert set(used) == {"cpu"}
    assert model.run_.metric("device") == ["cpu"]
    assert model.run_.metric("search") == ["exact"]
    assert adjusted_rand_score(model.labels_, np.arange(120) % 3) == 1.0


@needs("torch")
@pytest.mark.parametrize("face", ["FedTSNE", "FedUMAP", "FedSpectralClustering"])
def test_devices_that_cannot_work_are_refused(face):
    X, sites = three_groups()
    first = {"n_clusters": 3} if face == "FedSpectralClustering" else {}
    with pytest.raises(InputError, match="device='no such' is not available"):
        getattr(fs, face)(**first, device="no such").fit(X, sites=sites)
    with pytest.raises(InputError, match="neighbors='descent' runs on the processor only"):
        getattr(fs, face)(**first, device="cpu", neighbors="descent").fit(X, sites=sites)


def make(**more):
    quick = {"n_landmarks": 30, "rounds": 10, "early_exaggeration_iter": 50, "n_iter": 50, "perplexity": 10.0}
    return fs.FedTSNE(**quick, random_state=0, **more)


@pytest.fixture
def descent(monkeypatch):
    """Replace NN-descent, which numba compiles for half a minute, by a search that misses some neighbours as well.

    It takes only the options that the real one takes. `benchmarks/neighbors.py` runs the real one.
    """
    import pynndescent

    real = pynndescent.NNDescent
    assert isinstance(real.neighbor_graph, property)

    class Descent:
        def __init__(self, data, **options):
            given = inspect.signature(real).bind(data, **options).arguments
            assert given["metric"] == "euclidean"
            rng = np.random.default_rng(given["random_state"])
            distances, indices = NearestNeighbors(n_neighbors=given["n_neighbors"]).fit(data).kneighbors(data)
            indices[rng.random(indices.shape) < 0.01] = -1  # not found
            other = rng.random(indices.shape) < 0.02
            indices[other] = rng.integers(len(data), size=np.count_nonzero(other))
            self.neighbor_graph = indices.astype(np.int32), distances.astype(np.float32)

    monkeypatch.setattr(pynndescent, "NNDescent", Descent)


def test_descent_finds_what_the_search_in_blocks_finds(descent):
    rng = np.random.default_rng(0)
    C = rng.normal(size=(2000, 12)).astype(np.float32)
    h = rng.uniform(0, 1, 2000).astype(np.float32)
    rows = LowRankDistances(C, np.full(12, -2, dtype=np.float32), np.vecdot(C, C) + h, squared=True)
    with fs.LocalFederation([fs.Site("a", C)]).begin("search") as fed:
        indices, distances = neighbor_search.find_neighbors(fed, rows, 10, "descent")
    exact, far = nearest(rows, 10)
    recall = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(indices, exact, strict=True)])
    assert recall >= 0.95
    assert fed.record.metric("search") == ["descent"]
    assert fed.record.metric("search_recall")[0] == pytest.approx(recall, abs=0.03)
    assert fed.record.metric("search_sample") == [500]
    assert (indices != np.arange(2000)[:, None]).all()
    same = indices[:, 0] == exact[:, 0]
    np.testing.assert_allclose(distances[same, 0], far[same, 0], atol=1e-3)


def test_descent_takes_over_above_a_size(descent, monkeypatch):
    X, y = blobs(400)
    monkeypatch.setattr(neighbor_search, "DESCENT_ABOVE", 399)
    model = make().fit(X)
    assert model.run_.metric("search") == ["descent"]
    assert model.run_.metric("search_recall")[0] > 0.9
    assert accuracy(model.embedding_, y) > 0.97
    assert make(neighbors="exact").fit(X).run_.metric("search") == ["exact"]
    assert make(method="squared").fit(X).run_.metric("search") == ["exact"]
