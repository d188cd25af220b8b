"""Table 5: spectral clustering by the Gaussian kernel at one gamma, and by neighbours, against the pooled rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedspan.engines.local import federate
from fedspan.estimators.spectral import FedSpectralClustering, graph_eigenvectors, spectral_clusters
from fedspan.linalg.gaussian_kernel import kernel_matrix
from fedspan.linalg.map_quality import plain_distances
from fedspan.linalg.subspaces import top_eigenvectors
from fedspan.privacy.mechanisms import Mechanism
from fedspan.reproduce.fed_tsne.layouts import neighbors_of
from fedspan.reproduce.fed_tsne.paper import CLUSTERS, beside
from fedspan.reproduce.fed_tsne.rows import Rows
from fedspan.reproduce.fed_tsne.variants import DELTA, GUARANTEED, PAPER_NOISE
from fedspan.reproduce.parts import Table

Labels = NDArray[np.integer]
_NEIGHBORS = 10


def pooled_clusters(X: NDArray[np.floating], k: int, affinity: str) -> Labels:
    """Return the clusters of rows in one place, by the dense kernel at gamma 1 (n x n) or by neighbours."""
    if affinity == "kernel":
        D = np.asarray(X, dtype=np.float64) - X.mean(axis=0, dtype=np.float64)
        A = kernel_matrix(D, D, 0.5 / D.var(axis=0).sum())
        root = A.sum(axis=1) ** -0.5
        vectors = top_eigenvectors(root[:, None] * A * root, k)
    else:
        indices = neighbors_of(plain_distances(X), _NEIGHBORS)[0]
        vectors = graph_eigenvectors(indices, k, np.random.default_rng(0))[1]
    labels: Labels = spectral_clusters(vectors, k, 0).labels_
    return labels


def clusters_table(sets: dict[str, Rows], rounds: int = 50) -> Table:
    """Return NMI and ARI by data set, split and noise, the paper's beside those by the kernel."""
    lines = []
    for data, rows in sets.items():
        theirs = CLUSTERS.get(data, {})
        both = [
            _scores(rows, pooled_clusters(rows.X, rows.n_classes, affinity)) for affinity in ("kernel", "neighbors")
        ]
        lines.append(_line(f"{data}: pooled", both, theirs.get((None, False)), ""))
        ways: list[tuple[str, Mechanism | None]] = [("IID", None), ("IID", PAPER_NOISE), ("one class", None)]
        for split, privacy in [*ways, ("one class", PAPER_NOISE), ("one class", GUARANTEED)]:
            sites = rows.iid() if split == "IID" else rows.by_class()
            fed = federate(rows.X, sites=sites)
            order = np.argsort(sites, kind="stable")
            both, epsilon = [], "none"
            for affinity in ("kernel", "neighbors"):
                model = FedSpectralClustering(
                    rows.n_classes,
                    n_landmarks=rows.n_landmarks,
                    affinity=affinity,
                    rounds=rounds,
                    privacy=privacy,
                    random_state=0,
                ).fit(fed)
                both.append(_scores(rows, model.labels_, order))
                epsilon = "none" if model.run_.privacy is None else f"{model.run_.privacy.worst:,.3g}"
            noise = "" if privacy is None else ", paper's noise" if privacy is PAPER_NOISE else ", guaranteed noise"
            beside_it = None if privacy is GUARANTEED else theirs.get((split, privacy is not None))
            lines.append(_line(f"{data}: {split}{noise}", both, beside_it, epsilon))
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


def _scores(rows: Rows, labels: Labels, order: NDArray[np.intp] | None = None) -> tuple[float, float]:
    y = rows.y if order is None else rows.y[order]
    return float(normalized_mutual_info_score(y, labels)), float(adjusted_rand_score(y, labels))


def _line(
    name: str, both: list[tuple[float, float]], theirs: tuple[float, float | None] | None, epsilon: str
) -> list[str]:
    nmi, ari = theirs or (None, None)
    (kernel_nmi, kernel_ari), (near_nmi, near_ari) = both
    shown = [beside(kernel_nmi, nmi), beside(kernel_ari, ari), beside(near_nmi, None), beside(near_ari, None)]
    return [name, *shown, epsilon]
