"""Spectral clustering of the reproduction, against the estimator and against the true groups."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import fedspan as fs
from fedspan.papers.fed_tsne.learned_paper import LOADERS, learned
from fedspan.papers.fed_tsne.sweeps_paper import federated_clusters, pooled_clusters
from tests.real_data import real_file

from .blobs import blobs


def test_distances_are_those_that_sites_post():
    rows = blobs()
    sites = rows.sites("one class")
    found = learned(rows, sites, rounds=5)
    model = fs.FedSpectralClustering(4, n_landmarks=12, rounds=5, affinity="kernel", random_state=0)
    model.fit(fs.federate(rows.X, sites=sites))
    order = np.argsort(sites, kind="stable")
    assert model.landmarks_ == pytest.approx(found.model.landmarks_, abs=1e-9)
    assert adjusted_rand_score(model.labels_, federated_clusters(found, "kernel")[order]) == 1
    assert adjusted_rand_score(model.labels_, rows.y[order]) == 1


@pytest.mark.parametrize("affinity", ["kernel", "neighbors"])
def test_clusters_of_pooled_rows_find_blobs(affinity):
    rows = blobs()
    assert adjusted_rand_score(pooled_clusters(rows.X, 4, affinity), rows.y) == 1
    assert adjusted_rand_score(federated_clusters(learned(rows, rows.sites("IID"), rounds=5), affinity), rows.y) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "n"), [("mice", "mice_protein.csv.gz", 1080), ("COIL-20", "coil20_32x32.npz", 720)]
)
def test_federated_clusters_are_as_good_as_pooled_ones(name, file, n):
    real_file(file)
    rows = LOADERS[name](n)
    pooled = normalized_mutual_info_score(rows.y, pooled_clusters(rows.X, rows.n_classes, "neighbors"))
    ours = normalized_mutual_info_score(rows.y, federated_clusters(learned(rows, rows.sites("one class")), "neighbors"))
    assert ours == pytest.approx(pooled, abs=0.01)
