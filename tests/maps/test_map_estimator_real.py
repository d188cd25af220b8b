"""Maps of images, one class a site, beside centralised ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import fedspan as fs
from fedspan.linalg import LowRankDistances, nearest
from fedspan.maps.parts.map_estimator import principal_positions
from tests.landmarks.image_sites import images, recall

pytestmark = pytest.mark.slow


def qualities(Z, y, truth):
    found = NearestNeighbors(n_neighbors=10).fit(Z).kneighbors(return_distance=False)
    votes = np.array([np.bincount(y[row], minlength=10) for row in found])
    return np.mean(votes.argmax(axis=1) == y), recall(found, truth)


@pytest.mark.parametrize(
    ("model", "n", "draws"),
    [
        (fs.FedTSNE(200, rounds=30, n_iter=250), 1000, 3),
        (fs.FedUMAP(300, rounds=30, n_epochs=200), 1500, 8),
    ],
    ids=["tsne", "umap"],
)
def test_a_federated_map_is_as_good_as_a_centralised_one(model, n, draws):
    X, y = images("mnist", n)
    truth = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    D = (X - X.mean(axis=0)).astype(np.float32)
    rows = LowRankDistances(D, np.full(D.shape[1], -2, dtype=np.float32), np.vecdot(D, D), squared=True)
    central, ours, paper = [], [], []
    for seed in range(draws):
        model.set_params(random_state=seed)
        with fs.LocalFederation([fs.Site("all", X)], seed=seed).begin("centralised") as fed:
            start = principal_positions(D, 2, fed.rng)
            central.append(qualities(model._layout(fed, *nearest(rows, model._n_neighbors(len(X))), start), y, truth))
        ours.append(qualities(model.set_params(method="coordinates").fit(X, sites=y).embedding_, y, truth))
        if isinstance(model, fs.FedUMAP):
            paper.append(qualities(model.set_params(method="paper").fit(X, sites=y).embedding_, y, truth))
    # One layout's accuracy varies by about .01, on another processor too: only means over several draws compare.
    accuracy, kept = np.mean(central, axis=0)
    assert np.mean(ours, axis=0)[0] >= accuracy - 0.02
    assert np.mean(ours, axis=0)[1] >= kept - 0.016
    if paper:
        assert np.mean(paper, axis=0)[0] >= accuracy - 0.04
        assert np.mean(paper, axis=0)[1] >= kept - 0.06
