"""A table of three sites, and a run on it, which several tests attack."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs

SITES = np.array(["b", "a", "c"])


@pytest.fixture(scope="package")
def table():
    rng = np.random.default_rng(0)
    return rng.gamma(1.0, size=(60, 5)) @ rng.normal(size=(5, 5)), SITES[np.arange(60) % 3]


@pytest.fixture(scope="package")
def run(table, tmp_path_factory):
    """A model, and the folder of its run."""
    X, sites = table
    folder = tmp_path_factory.mktemp("run")
    with fs.federate(X, sites=sites, run_dir=folder) as fed:
        fs.FedStandardScaler().fit(fed)
        model = fs.FedSpectralClustering(2, n_landmarks=30, rounds=5, random_state=0).fit(fed)
    return model, folder
