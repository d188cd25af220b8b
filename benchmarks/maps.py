"""Maps of MNIST: federated against centralised, in quality and time, with the same libraries and settings.

Ten sites of one class each, 500 landmarks. CA10 is the leave-one-out accuracy of ten neighbours on the map, NPA10 the
share of the ten true neighbours that are neighbours on the map. 5,000 rows; ``FEDSPAN_MAP_ROWS=40000`` for more, and
``FEDSPAN_MAP_FACES=FedTSNE`` for one face alone. Needs mnist.npz in the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.datasets import load_mnist
from fedspan.estimators.fed_map import principal_positions
from fedspan.estimators.neighbor_search import find_neighbors
from fedspan.linalg import LowRankDistances, nearest

ROWS = int(os.environ.get("FEDSPAN_MAP_ROWS", "5000"))
FACES = os.environ.get("FEDSPAN_MAP_FACES", "FedTSNE,FedUMAP").split(",")
NEIGHBORS = 10


def main() -> dict[str, float]:
    mnist = load_mnist()
    chosen = np.random.default_rng(0).permutation(len(mnist.data))[:ROWS]
    X, y = mnist.data[chosen] / np.float32(255), mnist.target[chosen].astype(int)
    truth = nearest(_plain(X), NEIGHBORS)[0]
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        for face in FACES:
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


def _plain(X: np.ndarray) -> LowRankDistances:
    D = X - X.mean(axis=0)
    return LowRankDistances(D, np.full(D.shape[1], -2, dtype=np.float32), np.vecdot(D, D), squared=True)


def _run(face: str, X: np.ndarray, y: np.ndarray, **settings: object) -> tuple[Any, float]:
    began = time.perf_counter()
    model = getattr(fs, face)(random_state=0, **settings).fit(X, sites=y)
    return model, time.perf_counter() - began


def _centralised(face: str, X: np.ndarray, mirror: tuple[int, int] = (1, 1)) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    model, rows = getattr(fs, face)(), _plain(X)
    with fs.LocalFederation([fs.Site("all", X[:1])]).begin("centralised") as fed:
        start = principal_positions(rows.factor, 2, fed.rng) * mirror
        indices, distances = find_neighbors(fed, rows, model._n_neighbors(len(X)), "exact")
        Z = model._layout(fed, indices, distances, start)
    return Z, time.perf_counter() - began


def _quality(name: str, Z: np.ndarray, y: np.ndarray, truth: np.ndarray, seconds: float) -> dict[str, float]:
    found = nearest(_plain(Z.astype(np.float32)), NEIGHBORS)[0]
    votes = np.zeros((len(y), 10), dtype=int)
    np.add.at(votes, (np.arange(len(y))[:, None], y[found]), 1)
    accuracy = float(np.mean(votes.argmax(axis=1) == y))
    kept = float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)])) / NEIGHBORS
    print(f"{name:24} CA10 {accuracy:.4f}  NPA10 {kept:.4f}  {seconds:.0f} s")
    return {f"{name}: CA10": accuracy, f"{name}: NPA10": kept}


if __name__ == "__main__":
    main()
