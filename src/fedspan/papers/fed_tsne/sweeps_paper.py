"""Tables 3 to 5 and beyond: t-SNE by number of sites, landmarks and noise, MMD^2 by round, spectral clustering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fedspan.clustering.spectral import graph_eigenvectors, spectral_clusters
from fedspan.linalg.kernels.gaussian_kernel import kernel_matrix, spectral_factor
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.layout.map_quality import plain_distances
from fedspan.linalg.subspaces import top_eigenpairs
from fedspan.papers.fed_tsne.learned_paper import (
    DELTA,
    GUARANTEED,
    LEAK_HEADS,
    PAPER_NOISE,
    Learned,
    PaperRows,
    Pooled,
    beside,
    epsilon_words,
    learned,
    neighbors_of,
    noise_words,
    paper_way,
)
from fedspan.papers.fed_tsne.map_tables_paper import Quality, quality
from fedspan.papers.results_paper import Curves, Table, published
from fedspan.privacy import PaperNoise
from fedspan.privacy.mechanisms import Mechanism

Labels = NDArray[np.integer]
AFFINITIES = ("kernel", "neighbors")
BOTH_FORMS = ("ours: CA10", "NPA10", "paper's form: CA10", "NPA10")
#: What is compared by round: the split, the noise, and FedDL's settings.
RUNS: dict[str, tuple[str, Mechanism | None, dict[str, Any]]] = {
    "default, IID": ("IID", None, {}),
    "default, one class": ("one class", None, {}),
    "no momentum, one class": ("one class", None, {"momentum": 0.0}),
    "5 local steps, IID": ("IID", None, {"momentum": 0.0, "local_steps": 5}),
    "5 local steps, one class": ("one class", None, {"momentum": 0.0, "local_steps": 5}),
    "paper's noise, IID": ("IID", PAPER_NOISE, {}),
    "paper's noise, one class": ("one class", PAPER_NOISE, {}),
}
_NEIGHBORS = 10


def by_sites(rows: PaperRows, counts: Mapping[str, Sequence[int]], rounds: int) -> Table:
    """Return Tables 3 and 4: the paper's form by numbers of sites, split ``"by class"`` or ``"IID"``."""
    pooled, lines = Pooled(rows.X), []
    theirs = published("fed-tsne")["sites"] if rows.name == "MNIST" else {}
    compared = " In brackets: the paper's values, of 40,000 rows (Tables 3 and 4)." if theirs else ""
    for split, n, noise in [(split, n, noise) for split, ns in counts.items() for n in ns for noise in ("", ", noise")]:
        found = learned(rows, rows.sites(split, n), PAPER_NOISE if noise else None, rounds=rounds)
        map_ = _quality(found, "paper", pooled)
        nmi, kept = theirs.get(split + noise, {}).get(str(n), (None, None))
        cells = [beside(map_.accuracy[1]), beside(map_.preserved[1], kept), beside(map_.nmi, nmi)]
        lines.append([f"{n} sites, {split}{noise}", *cells, epsilon_words(found.epsilon)])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by number of sites, the paper's form",
        ["", "CA10", "NPA10", "NMI", "epsilon"],
        lines,
        f"{rows.n_landmarks} landmarks, {rounds} rounds, seed 0.{compared} Noise: as in the paper; its epsilon (worst "
        f"site, delta {DELTA:g}) is that of the landmarks alone.",
    )


def by_landmarks(rows: PaperRows, counts: Sequence[int], rounds: int) -> Table:
    """Return use against leak by number of landmarks, for both forms of distance."""
    pooled, lines = Pooled(rows.X), []
    for n_y in counts:
        found = learned(rows, rows.sites("one class"), n_landmarks=n_y, rounds=rounds)
        lines.append([f"{n_y}", *_both_forms(found, pooled), f"{found.model.mmd2_:.1e}", *found.leak().cells()])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by number of landmarks",
        ["landmarks", *BOTH_FORMS, "MMD^2", *LEAK_HEADS],
        lines,
        f"One class a site, {rounds} rounds, seed 0, no noise. Leak: rows rebuilt from the posted distances.",
    )


def by_noise(rows: PaperRows, betas: Sequence[float], rounds: int) -> Table:
    """Return both forms by the size of the paper's noise, one class a site."""
    pooled, lines = Pooled(rows.X), []
    kinds: dict[str, Mechanism | None] = {f"beta {beta:g}": PaperNoise(beta, DELTA) if beta else None for beta in betas}
    for name, privacy in {**kinds, "guaranteed": GUARANTEED}.items():
        found = learned(rows, rows.sites("one class"), privacy, rounds=rounds)
        lines.append([name, *_both_forms(found, pooled), epsilon_words(found.epsilon), *found.leak().cells()])
    return Table(
        f"{rows.name}, {len(rows.X):,} rows: t-SNE by noise",
        ["", *BOTH_FORMS, "epsilon", *LEAK_HEADS],
        lines,
        f"{rows.n_landmarks} landmarks, one class a site, {rounds} rounds, seed 0. The noise's deviation is beta "
        f"times that of a gradient's entries; epsilon (worst site, delta {DELTA:g}) is what noise of this size would "
        "have, for the landmarks alone: the posted distances come from the rows as they are.",
    )


def convergence(rows: PaperRows, rounds: int) -> Curves:
    """Return MMD^2 by round, for `RUNS`."""
    lines = {}
    for name, (split, privacy, settings) in RUNS.items():
        found = learned(rows, rows.sites(split), privacy, rounds=rounds, n_frequencies=1024, **settings)
        values = np.asarray(found.model.run_.metric("mmd2"), dtype=np.float64)
        lines[name] = np.arange(len(values), dtype=np.float64), values
    return Curves(
        f"{rows.name}, {len(rows.X):,} rows: MMD^2 by round",
        "round",
        lines,
        f"{rows.n_landmarks} landmarks, ten sites (IID) or one for each class, seed 0; estimated by 1024 random "
        "directions. Without noise and with one local step the split makes no difference. 5 local steps: five times "
        "the work in a round. Noise: as in the paper, without momentum.",
        at=[x for x in (0, 5, 10, 20, 50) if x <= rounds],
        log=True,
    )


def pooled_clusters(X: NDArray[np.floating], k: int, affinity: str) -> Labels:
    """Return the clusters of rows in one place, by the dense kernel at gamma 1 (n x n) or by neighbours."""
    if affinity == "neighbors":
        return _by_neighbors(plain_distances(X), k)
    D = np.asarray(X, dtype=np.float64) - X.mean(axis=0, dtype=np.float64)
    A = kernel_matrix(D, D, 0.5 / D.var(axis=0).sum())
    root = A.sum(axis=1) ** -0.5
    return _labels(top_eigenpairs(root[:, None] * A * root, k)[1], k)


def federated_clusters(found: Learned, affinity: str) -> Labels:
    """Return the clusters of rows by their posted distances, as `FedSpectralClustering` does."""
    k, Y = found.rows.n_classes, found.positions
    if affinity == "neighbors":
        return _by_neighbors(found.form("coordinates"), k)
    K = np.exp(-0.5 * np.square(found.B / found.model.scale_, dtype=np.float64))
    return _labels(spectral_factor(K, kernel_matrix(Y, Y, 0.5), k).vectors, k)


def clusters_table(sets: Mapping[str, PaperRows], rounds: int) -> Table:
    """Return Table 5: NMI and ARI by data set, split and noise, the paper's beside those by the kernel."""
    lines = []
    ways = [(split, noise) for split in ("IID", "one class") for noise in (None, PAPER_NOISE)]
    for data, rows in sets.items():
        theirs = published("fed-tsne")["clusters"].get(data, {})
        labels = [pooled_clusters(rows.X, rows.n_classes, affinity) for affinity in AFFINITIES]
        lines.append([f"{data}: pooled", *_scores(rows.y, labels, theirs.get("centralised", ())), ""])
        for split, privacy in (*ways, ("one class", GUARANTEED)):
            found = learned(rows, rows.sites(split), privacy, rounds=rounds)
            labels = [federated_clusters(found, affinity) for affinity in AFFINITIES]
            scores = _scores(rows.y, labels, theirs.get(paper_way(split, privacy), ()))
            lines.append([f"{data}: {split}{noise_words(privacy)}", *scores, epsilon_words(found.epsilon)])
    sizes = ", ".join(f"{name} {len(rows.X):,} rows and {rows.n_landmarks} landmarks" for name, rows in sets.items())
    return Table(
        "Spectral clustering (Table 5)",
        ["", "kernel: NMI", "ARI", "neighbours: NMI", "ARI", "epsilon"],
        lines,
        f"{sizes}; {rounds} rounds, seed 0. Kernel: gamma one over the mean squared distance, for pooled and federated "
        "rows alike; neighbours: the graph of ten. In brackets: the paper's values, whose gamma is not given and was "
        f"adjusted for each. Epsilon: of the landmarks alone, worst site, delta {DELTA:g}.",
    )


def _quality(found: Learned, method: str, pooled: Pooled) -> Quality:
    return quality(found.maps(method, ["t-SNE"])["t-SNE"], found.rows.y, pooled.indices)


def _both_forms(found: Learned, pooled: Pooled) -> list[str]:
    both = [_quality(found, method, pooled) for method in ("coordinates", "paper")]
    return [beside(value) for q in both for value in (q.accuracy[1], q.preserved[1])]


def _scores(y: Labels, labels: Sequence[Labels], theirs: Sequence[float]) -> list[str]:
    """Return NMI and ARI of each labelling, the paper's values beside the first ones."""
    ours = [score(y, some) for some in labels for score in (normalized_mutual_info_score, adjusted_rand_score)]
    return [beside(float(one), theirs[i] if i < len(theirs) else None) for i, one in enumerate(ours)]


def _by_neighbors(rows: LowRankDistances, k: int) -> Labels:
    indices = neighbors_of(rows, _NEIGHBORS)[0]
    return _labels(graph_eigenvectors(indices, k, np.random.default_rng(0))[1], k)


def _labels(vectors: NDArray[Any], k: int) -> Labels:
    labels: Labels = spectral_clusters(vectors, k, 0).labels_
    return labels
