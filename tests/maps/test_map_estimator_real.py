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
    ("model", "n"),
    [
        (fs.FedTSNE(200, rounds=30, n_iter=250, random_state=0), 1000),
        (fs.FedUMAP(300, rounds=30, n_epochs=200, random_state=0), 1500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_federated_map_is_as_good_as_a_centralised_one(model, n):
    X, y = images("mnist", n)
    truth = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    D = (X - X.mean(axis=0)).astype(np.float32)
    rows = LowRankDistances(D, np.full(D.shape[1], -2, dtype=np.float32), np.vecdot(D, D), squared=True)
    with fs.LocalFederation([fs.Site("all", X)]).begin("centralised") as fed:
        start = principal_positions(D, 2, fed.rng)
        central = qualities(model._layout(fed, *nearest(rows, model._n_neighbors(len(X))), start), y, truth)
    ours = qualities(model.set_params(method="coordinates").fit(X, sites=y).embedding_, y, truth)
    if isinstance(model, fs.FedUMAP):
        paper = qualities(model.set_params(method="paper").fit(X, sites=y).embedding_, y, truth)
        assert paper[0] >= central[0] - 0.04
        assert paper[1] >= central[1] - 0.06
    # Centralised layouts of the same neighbours of 5,000 rows, from mirrored starts, differ by up to .007 in accuracy;
    # of 1,000 rows, by the root of that ratio, up to .016. Neighbours kept are the sharper measure.
    assert ours[0] >= central[0] - 0.02
    assert ours[1] >= central[1] - 0.016
