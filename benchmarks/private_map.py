"""The private map, ``FedTSNE(share="sums")``, and its one-shot form: quality, how well sites coincide, and time.

Ten sites: iid (rows dealt out), class (one class a site), share (two classes a site, each class at two sites). CA10 is
the leave-one-out accuracy of ten neighbours on the map, NPA10 the share of the ten true neighbours that are neighbours
on the map, mix the share of own-site rows among map neighbours of the same class over what it would be by chance (1:
sites coincide; 10: ten alike sites fully apart). "control" is the same optimiser and histogram on the pooled rows with
the neighbours of t-SNE (90, perplexity 30), beside openTSNE. Time is of the processor.

``FEDSPAN_MAP_SEEDS=100,101,102`` (of the sample and the split), ``FEDSPAN_MAP_ROWS=5000``,
``FEDSPAN_MAP_PARTS=mnist,large,fashion,time`` (``one-shot``, ``mice``, ``unsw`` are the others),
``FEDSPAN_MAP_SETTINGS`` (``sums_settings`` of the maps, as JSON). Needs the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.datasets import load_fashion_mnist, load_mice_protein, load_mnist, load_unsw_nb15
from fedspan.linalg import nearest
from fedspan.linalg.layout.map_graph import plain
from fedspan.maps.by_sums import Layout, private_map
from fedspan.maps.parts.map_centres import Codebooks

ROWS = int(os.environ.get("FEDSPAN_MAP_ROWS", "5000"))
SEEDS = [int(seed) for seed in os.environ.get("FEDSPAN_MAP_SEEDS", "100,101,102").split(",")]
PARTS = os.environ.get("FEDSPAN_MAP_PARTS", "mnist,large,fashion,time").split(",")
SETTINGS = json.loads(os.environ.get("FEDSPAN_MAP_SETTINGS", "null"))
SITES, NEIGHBORS = 10, 10


def main() -> dict[str, float]:
    figures: dict[str, list[float]] = {}
    parts: dict[str, Callable[[int], dict[str, float]]] = {
        "mnist": _mnist,
        "large": _large,
        "fashion": _fashion,
        "one-shot": _one_shot,
        "mice": _mice,
        "unsw": _unsw,
        "time": _time,
    }
    with threadpool_limits(1):
        for part in PARTS:
            for seed in SEEDS if part != "time" else SEEDS[:1]:
                for name, value in parts[part](seed).items():
                    figures.setdefault(name, []).append(value)
    means = {name: float(np.mean(values)) for name, values in figures.items()}
    print(f"\nmeans over seeds {SEEDS}")
    for name, value in means.items():
        print(f"{name:46} {value:.4f}")
    return means


def _mnist(seed: int) -> dict[str, float]:
    X, y, truth = _images(load_mnist, ROWS, seed)
    figures: dict[str, float] = {}
    for split in ("iid", "class", "share"):
        figures |= _private(f"MNIST {ROWS} {split}", X, y, truth, _split(y, split, seed), seed)
    figures |= _measured(f"MNIST {ROWS} control", *_control(X, seed), y, truth)
    return figures | _measured(f"MNIST {ROWS} openTSNE", *_opentsne(X), y, truth)


def _large(seed: int) -> dict[str, float]:
    X, y, truth = _images(load_mnist, 2 * ROWS, seed)
    return _private(f"MNIST {2 * ROWS} iid", X, y, truth, _split(y, "iid", seed), seed)


def _fashion(seed: int) -> dict[str, float]:
    X, y, truth = _images(load_fashion_mnist, ROWS, seed)
    figures = _private(f"Fashion {ROWS} iid", X, y, truth, _split(y, "iid", seed), seed)
    return figures | _measured(f"Fashion {ROWS} openTSNE", *_opentsne(X), y, truth)


def _one_shot(seed: int) -> dict[str, float]:
    X, y, truth = _images(load_mnist, ROWS, seed)
    sites = _split(y, "iid", seed)
    return _private(f"MNIST {ROWS} iid, one shot", X, y, truth, sites, seed, share="centers")


def _mice(seed: int) -> dict[str, float]:
    mice = load_mice_protein()
    X = np.asarray(mice.data, dtype=np.float64)
    X = np.where(np.isfinite(X), X, np.nanmean(X, axis=0))
    return _table("mice", X, np.unique(np.asarray(mice.target), return_inverse=True)[1], seed)


def _unsw(seed: int) -> dict[str, float]:
    traffic = load_unsw_nb15()
    X, first = np.unique(np.log1p(np.maximum(np.asarray(traffic.data, dtype=np.float64), 0)), axis=0, return_index=True)
    y = np.unique(np.asarray(traffic.attack_cat)[first].astype(str), return_inverse=True)[1]
    some = np.random.default_rng(seed).permutation(len(X))[:ROWS]
    return _table("UNSW", X[some], y[some], seed)


def _table(name: str, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    deviations = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    truth = nearest(plain(X), NEIGHBORS)[0]
    figures: dict[str, float] = {}
    for split in ("iid", "class", "share"):
        figures |= _private(f"{name} {split}", X, y, truth, _split(y, split, seed), seed)
    return figures


def _time(seed: int) -> dict[str, float]:
    """Return the time of one map, plain and with secure sums; positions are not posted."""
    X, y, _ = _images(load_mnist, ROWS, seed)
    seconds: dict[str, float] = {}
    for name, policy in (("plain", None), ("secure sums", fs.Policy(secure_sum=True))):
        fed = fs.federate(X, sites=_split(y, "iid", seed), policy=policy)
        model, seconds[name] = _timed(lambda fed=fed: fs.FedTSNE(share="sums", random_state=seed).fit(fed))
        sent = model.run_.bytes_up / 2**20 / SITES
        print(f"time, {name}: {seconds[name]:.1f} s, {sent:.0f} MiB up per site, {len(model.run_.calls)} calls")
    ratio = seconds["secure sums"] / seconds["plain"]
    return {f"time, {name}": value for name, value in seconds.items()} | {"time, secure / plain": ratio}


def _images(load: Callable[[], Any], rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images = load()
    some = np.random.default_rng(seed).permutation(len(images.data))[:rows]
    X = images.data[some] / np.float32(255)
    return X, images.target[some].astype(int), nearest(plain(X - X.mean(axis=0)), NEIGHBORS)[0]


def _split(y: np.ndarray, how: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed + 1)
    if how == "iid":
        return rng.permutation(len(y)) % SITES
    if how == "class":
        return y
    sites, classes = np.empty(len(y), dtype=int), int(y.max()) + 1
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(y == label))
        sites[rows[::2]], sites[rows[1::2]] = label, (label + 1) % classes
    return sites


def _private(
    name: str, X: np.ndarray, y: np.ndarray, truth: np.ndarray, sites: np.ndarray, seed: int, share: str = "sums"
) -> dict[str, float]:
    model, seconds = _timed(
        lambda: fs.FedTSNE(share=share, random_state=seed, sums_settings=SETTINGS).fit(X, sites=sites)
    )
    Z = model.embedding_
    radius = np.linalg.norm(Z - np.median(Z, axis=0), axis=1)
    figures = _measured(name, Z, seconds, y, truth, sites)
    print(f"{'':28} {len(model.centers_)} centres; farthest row at {radius.max() / np.median(radius):.2f} median radii")
    return figures | {f"{name}: farthest / median radius": float(radius.max() / np.median(radius))}


def _control(X: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Return a map by the same optimiser from the pooled rows' own neighbours alone."""
    layout = Layout(own_share=1.0, own_neighbours=90, own_perplexity=30.0)
    books = Codebooks(codebooks=1, k_means_rounds=1)  # nothing is tied to centres
    fed = fs.LocalFederation([fs.Site("all", X)], seed=seed)
    made, seconds = _timed(lambda: fed.run(private_map, layout=layout, books=books, post_positions=True))
    return made.embedding["all"], seconds


def _opentsne(X: np.ndarray) -> tuple[np.ndarray, float]:
    from openTSNE import TSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    def fit() -> np.ndarray:
        D = (X - X.mean(axis=0)).astype(np.float64)
        C = D @ np.linalg.eigh(D.T @ D)[1][:, ::-1][:, :50]
        indices, distances = nearest(plain(C), 90)
        affinities = PerplexityBasedNN(
            perplexity=30, knn_index=PrecomputedNeighbors(indices.astype(np.int64), distances.astype(np.float64))
        )
        return np.asarray(
            TSNE(random_state=0).fit(affinities=affinities, initialization=1e-4 * C[:, :2] / C[:, 0].std())
        )

    return _timed(fit)


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    made = make()
    return made, time.process_time() - began


def _measured(
    name: str, Z: np.ndarray, seconds: float, y: np.ndarray, truth: np.ndarray, sites: np.ndarray | None = None
) -> dict[str, float]:
    found = nearest(plain(Z - Z.mean(axis=0)), NEIGHBORS)[0]
    votes = np.zeros((len(y), int(y.max()) + 1), dtype=int)
    np.add.at(votes, (np.arange(len(y))[:, None], y[found]), 1)
    figures = {
        "CA10": float(np.mean(votes.argmax(axis=1) == y)),
        "NPA10": float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)])) / NEIGHBORS,
    }
    if sites is not None and (sites != y).any():
        figures["mix"] = _mix(found, y, sites)
    shown = "  ".join(f"{key} {value:.4f}" for key, value in figures.items())
    print(f"{name:28} {shown}  {seconds:.1f} s", flush=True)
    return {f"{name}: {key}": value for key, value in figures.items()}


def _mix(found: np.ndarray, y: np.ndarray, sites: np.ndarray) -> float:
    """Return the share of own-site rows among neighbours of the same class, over what it would be by chance."""
    alike = y[found] == y[:, None]
    own = alike & (sites[found] == sites[:, None])
    chance = np.empty(len(y))
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        counts = np.bincount(sites[rows])
        chance[rows] = (counts[sites[rows]] - 1) / max(len(rows) - 1, 1)
    return float(own.sum() / (alike.sum(axis=1) * chance).sum())


if __name__ == "__main__":
    main()
