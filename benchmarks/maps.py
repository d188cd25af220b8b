"""Federated maps of MNIST against pooled openTSNE and umap-learn, in quality and time.

Ten sites of one class each, 500 landmarks. In the battery: 3,000 rows, the faces' defaults against the libraries' own.
By name also federated against centralised maps with the same settings, by both ways to find neighbours: 5,000 rows;
``FEDSPAN_MAP_ROWS=40000`` for more, and ``FEDSPAN_MAP_FACES=t-SNE`` for one face alone. CA10 is the leave-one-out
accuracy of ten neighbours on the map, NPA10 the share of the ten true neighbours that are neighbours on the map. Needs
mnist.npz in the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.battery.ratio import LeftOut, Ratio, Spent, clocks
from fedspan.datasets import load_mnist
from fedspan.errors import DataMissingError
from fedspan.linalg import nearest
from fedspan.linalg.layout.map_quality import map_neighbors, plain_distances, shared_neighbors
from fedspan.papers.fed_tsne.learned_paper import FACES, Pooled, laid_out
from fedspan.papers.fed_tsne.map_tables_paper import vote_accuracy

ROWS = int(os.environ.get("FEDSPAN_MAP_ROWS", "5000"))
CHOSEN = os.environ.get("FEDSPAN_MAP_FACES", "t-SNE,UMAP").split(",")
NEIGHBORS = 10
COMPARED_ROWS, TURNS = 3000, 3
PROCESSES = 1  # each would compile again


def compare() -> Iterator[Ratio | LeftOut]:
    try:
        X, y = _digits(COMPARED_ROWS)
    except DataMissingError as missing:
        yield LeftOut("maps", str(missing))
        return
    truth = nearest(plain_distances(X), NEIGHBORS)[0]
    for face, (peer, pooled) in {"t-SNE": ("openTSNE", _open_tsne), "UMAP": ("umap-learn", _umap)}.items():
        moved: list[int] = []
        for fit in (_federated(face, y, moved), pooled):
            fit(X[:500], 0)  # whatever is compiled when it is first used
        ours: list[Spent] = []
        theirs: list[Spent] = []
        measures = []
        for seed in range(TURNS):
            maps, spent = zip(*(_spent(fit, X, seed) for fit in (_federated(face, y, moved), pooled)), strict=True)
            ours.append(spent[0])
            theirs.append(spent[1])
            measures.append([_measures(Z, y, truth) for Z in maps])
        mean = np.mean(measures, axis=0)
        ratio = Ratio.of(
            f"Federated {face} of {COMPARED_ROWS:,} MNIST digits, ten sites of one digit each",
            f"{peer} on the pooled rows",
            ours,
            theirs,
            f"means of seeds 0 to {TURNS - 1}; at most {max(moved) / 1e6:.0f} MB up and down together",
        )
        quality = {name: (float(mean[0][i]), float(mean[1][i])) for i, name in enumerate(("CA10", "NPA10"))}
        yield replace(ratio, quality=quality)


def _open_tsne(X: np.ndarray, seed: int) -> np.ndarray:
    """What its documentation begins with: the defaults, and one thread."""
    import openTSNE

    return np.asarray(openTSNE.TSNE(n_jobs=1, random_state=seed).fit(X))


def _umap(X: np.ndarray, seed: int) -> np.ndarray:
    """What its documentation begins with: the defaults. With a seed it uses one thread."""
    import umap

    return umap.UMAP(n_jobs=1, random_state=seed).fit_transform(X)


def _federated(face: str, y: np.ndarray, moved: list[int]) -> Callable[[np.ndarray, int], np.ndarray]:
    """Return the fit of a federated map, which notes the bytes that it moved in both directions."""

    def fit(X: np.ndarray, seed: int) -> np.ndarray:
        model = FACES[face](random_state=seed).fit(X, sites=y[: len(X)])
        moved.append(model.run_.bytes_up + model.run_.bytes_down)
        return model.embedding_

    return fit


def _spent(fit: Callable[[np.ndarray, int], np.ndarray], X: np.ndarray, seed: int) -> tuple[np.ndarray, Spent]:
    began = clocks()
    return fit(X, seed), clocks() - began


def _measures(Z: np.ndarray, y: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    found = map_neighbors(Z, NEIGHBORS)
    return vote_accuracy(found, y), shared_neighbors(found, truth)


def _digits(rows: int) -> tuple[np.ndarray, np.ndarray]:
    mnist = load_mnist()
    chosen = np.random.default_rng(0).permutation(len(mnist.data))[:rows]
    return mnist.data[chosen] / np.float32(255), mnist.target[chosen].astype(int)


def main() -> dict[str, float]:
    X, y = _digits(ROWS)
    truth = nearest(plain_distances(X), NEIGHBORS)[0]
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        for face in CHOSEN:
            _run(face, X[:200], y[:200], rounds=1)  # whatever is compiled when it is first used
            Z, central = _centralised(face, X)
            figures |= _quality(f"{face}, centralised", Z, y, truth, central)
            for mirror in ((-1, 1), (1, -1)) if ROWS <= 5000 else ():  # how far layouts of the same neighbours differ
                Z, seconds = _centralised(face, X, mirror)
                _quality(f"{face}, mirrored", Z, y, truth, seconds)
            for method in ("coordinates", "paper"):
                model, seconds = _run(face, X, y, method=method)
                figures |= _quality(f"{face}, {method}", model.embedding_, y, truth, seconds)
                figures[f"{face}, {method}: time / centralised"] = seconds / central
                print(
                    f"{'':24} {seconds / central:.2f} times the centralised one; landmarks in {model.precision_} "
                    f"precision, MMD^2 {model.mmd2_:.1e}, {model.run_.bytes_up / 2**20:.0f} MiB up"
                )
    print(f"(n={ROWS}; aims: time at most 1.5 of centralised; coordinates within .006 of its CA10, .008 of its NPA10)")
    return figures


def _run(face: str, X: np.ndarray, y: np.ndarray, **settings: object) -> tuple[Any, float]:
    began = time.perf_counter()
    model = FACES[face](random_state=0, **settings).fit(X, sites=y)
    return model, time.perf_counter() - began


def _centralised(face: str, X: np.ndarray, mirror: tuple[int, int] = (1, 1)) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    pooled = Pooled(X, FACES[face]()._n_neighbors(len(X)))
    Z = laid_out(face, pooled.indices, pooled.distances, pooled.rows.factor, mirror)
    return Z, time.perf_counter() - began


def _quality(name: str, Z: np.ndarray, y: np.ndarray, truth: np.ndarray, seconds: float) -> dict[str, float]:
    accuracy, kept = _measures(Z, y, truth)
    print(f"{name:24} CA10 {accuracy:.4f}  NPA10 {kept:.4f}  {seconds:.0f} s")
    return {f"{name}: CA10": accuracy, f"{name}: NPA10": kept}
