"""FedUMAP beside umap-learn on the pooled rows: as good, within .005."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

import fedspan as fs
from fedspan.datasets import load_mnist
from fedspan.linalg import nearest
from fedspan.linalg.layout.map_quality import map_neighbors, plain_distances, shared_neighbors
from tests.real_data import real_file

pytestmark = pytest.mark.slow


def test_maps_of_digits_are_as_good_as_those_of_umap_learn():
    import umap

    real_file("mnist.npz")
    data = load_mnist()
    measures = []
    for seed in range(3):
        chosen = np.random.default_rng(seed).permutation(len(data.data))[:1500]
        X, y = data.data[chosen] / np.float32(255), data.target[chosen].astype(int)
        truth = nearest(plain_distances(X), 10)[0]
        ours = fs.FedUMAP(random_state=seed).fit(X, sites=y)
        assert ours.run_.bytes_up + ours.run_.bytes_down < 100e6
        theirs = umap.UMAP(n_jobs=1, random_state=seed).fit_transform(X)
        for Z in (ours.embedding_, theirs):
            found = map_neighbors(Z, 10)
            votes = [np.bincount(y[row], minlength=10).argmax() for row in found]
            measures.append(
                (np.mean(votes == y), shared_neighbors(found, truth), trustworthiness(X, Z, n_neighbors=15))
            )
    mine, peer = np.mean(measures[::2], axis=0), np.mean(measures[1::2], axis=0)
    assert (mine > peer - 0.005).all(), (mine, peer)
