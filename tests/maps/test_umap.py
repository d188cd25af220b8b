"""FedUMAP: what only UMAP's layout has."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs


def test_a_neighbour_graph_in_several_parts_is_reported():
    X = np.random.default_rng(0).normal(size=(60, 3)) + 100.0 * (np.arange(60) % 3)[:, None]
    model = fs.FedUMAP(n_landmarks=15, rounds=5, n_neighbors=4, n_epochs=5, random_state=0)
    with pytest.warns(UserWarning, match="the neighbour graph has 3 parts"):
        model.fit(X, sites=np.arange(60) % 2)
