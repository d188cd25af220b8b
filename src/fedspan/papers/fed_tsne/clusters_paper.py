"""Table 5: spectral clustering by the Gaussian kernel at one gamma, and by neighbours, against the pooled rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedspan.clustering.spectral import graph_eigenvectors, spectral_clusters
from fedspan.linalg.kernels.gaussian_kernel import kernel_matrix, spectral_factor
from fedspan.linalg.layout.map_quality import plain_distances
from fedspan.linalg.subspaces import top_eigenpairs
from fedspan.papers.fed_tsne.fed_tsne_numbers_paper import CLUSTERS, beside
from fedspan.papers.fed_tsne.layouts_paper import neighbors_of
from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.papers.fed_tsne.variants_paper import (
    DELTA,
    GUARANTEED,
    PAPER_NOISE,
    Learned,
    epsilon_words,
    learned,
    noise_words,
)
from fedspan.papers.results_paper import Table
from fedspan.privacy.mechanisms import Mechanism

Labels = NDArray[np.integer]
AFFINITIES = ("kernel", "neighbors")
_NEIGHBORS = 10


def pooled_clusters(X: NDArray[np.floating], k: int, affinity: str) -> Labels:
    """Return the clusters of rows in one place, by the dense kernel at gamma 1 (n x n) or by neighbours."""
    if affinity == "kernel":
        D = np.asarray(X, dtype=np.float64) - X.mean(axis=0, dtype=np.float64)
        A = kernel_matrix(D, D, 0.5 / D.var(axis=0).sum())
        root = A.sum(axis=1) ** -0.5
        vectors = top_eigenpairs(root[:, None] * A * root, k)[1]
    else:
        indices = neighbors_of(plain_distances(X), _NEIGHBORS)[0]
        vectors = graph_eigenvectors(indices, k, np.random.default_rng(0))[1]
    labels: Labels = spectral_clusters(vectors, k, 0).labels_
    return labels


def federated_clusters(found: Learned, affinity: str) -> Labels:
    """Return the clusters of rows known by their posted distances: what `FedSpectralClustering` does with these."""
    k, scale = found.rows.n_classes, found.model.scale_
    if affinity == "kernel":
        Y = (found.model.landmarks_ - found.model.centre_) / scale
        K = np.exp(-0.5 * np.square(found.B / scale, dtype=np.float64))
        vectors = spectral_factor(K, kernel_matrix(Y, Y, 0.5), k).vectors
    else:
        indices = neighbors_of(found.form("coordinates"), _NEIGHBORS)[0]
        vectors = graph_eigenvectors(indices, k, np.random.default_rng(0))[1]
    labels: Labels = spectral_clusters(vectors, k, 0).labels_
    return labels


def clusters_table(sets: Mapping[str, Rows], rounds: int = 50) -> Table:
    """Return NMI and ARI by data set, split and noise, the paper's beside those by the kernel."""
    lines = []
    ways: list[tuple[str, Mechanism | None]] = [
        *(("IID", None), ("IID", PAPER_NOISE), ("one class", None), ("one class", PAPER_NOISE)),
        ("one class", GUARANTEED),
    ]
    for data, rows in sets.items():
        theirs = CLUSTERS.get(data, {})
        pooled = [_scores(rows, pooled_clusters(rows.X, rows.n_classes, affinity)) for affinity in AFFINITIES]
        lines.append(_line(f"{data}: pooled", pooled, theirs.get((None, False)), ""))
        for split, privacy in ways:
            found = learned(rows, rows.iid() if split == "IID" else rows.by_class(), privacy, rounds=rounds)
            scores = [_scores(rows, federated_clusters(found, affinity)) for affinity in AFFINITIES]
            beside_it = None if privacy is GUARANTEED else theirs.get((split, privacy is not None))
            name = f"{data}: {split}{noise_words(privacy)}"
            lines.append(_line(name, scores, beside_it, epsilon_words(found.epsilon)))
    told = ", ".join(f"{name} {len(rows.X):,} rows and {rows.n_landmarks} landmarks" for name, rows in sets.items())
    return Table(
        "Spectral clustering (Table 5)",
        ["", "kernel: NMI", "ARI", "neighbours: NMI", "ARI", "epsilon"],
        lines,
        f"{told}; {rounds} rounds, seed 0. Kernel: gamma one over the mean squared distance, for pooled and federated "
        "rows alike; neighbours: the graph of ten. In brackets: the paper's values, whose gamma is not given and was "
        "adjusted for each. "
        f"Epsilon: of the landmarks alone, worst site, delta {DELTA:g}.",
    )


def _scores(rows: Rows, labels: Labels) -> tuple[float, float]:
    return float(normalized_mutual_info_score(rows.y, labels)), float(adjusted_rand_score(rows.y, labels))


def _line(
    name: str, both: list[tuple[float, float]], theirs: tuple[float, float | None] | None, epsilon: str
) -> list[str]:
    nmi, ari = theirs or (None, None)
    (kernel_nmi, kernel_ari), (near_nmi, near_ari) = both
    shown = [beside(kernel_nmi, nmi), beside(kernel_ari, ari), beside(near_nmi, None), beside(near_ari, None)]
    return [name, *shown, epsilon]
