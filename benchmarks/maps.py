"""Maps of MNIST: federated against centralised, in quality and time, with the same libraries and settings.

Ten sites of one class each, 500 landmarks. CA10 is the leave-one-out accuracy of ten neighbours on the map, NPA10 the
share of the ten true neighbours that are neighbours on the map. 5,000 rows; ``FEDSPAN_MAP_ROWS=40000`` for more, and
``FEDSPAN_MAP_FACES=t-SNE`` for one face alone. Needs mnist.npz in the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedspan.datasets import load_mnist
from fedspan.linalg import nearest
from fedspan.linalg.map_quality import map_neighbors, plain_distances, shared_neighbors
from fedspan.reproduce.fed_tsne.layouts import FACES, Pooled, laid_out
from fedspan.reproduce.fed_tsne.measures import vote_accuracy

ROWS = int(os.environ.get("FEDSPAN_MAP_ROWS", "5000"))
CHOSEN = os.environ.get("FEDSPAN_MAP_FACES", "t-SNE,UMAP").split(",")
NEIGHBORS = 10


def main() -> dict[str, float]:
    mnist = load_mnist()
    chosen = np.random.default_rng(0).permutation(len(mnist.data))[:ROWS]
    X, y = mnist.data[chosen] / np.float32(255), mnist.target[chosen].astype(int)
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
    found = map_neighbors(Z, NEIGHBORS)
    accuracy, kept = vote_accuracy(found, y), shared_neighbors(found, truth)
    print(f"{name:24} CA10 {accuracy:.4f}  NPA10 {kept:.4f}  {seconds:.0f} s")
    return {f"{name}: CA10": accuracy, f"{name}: NPA10": kept}


if __name__ == "__main__":
    main()
