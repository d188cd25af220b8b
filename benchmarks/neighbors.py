"""Blocked exact neighbours from low-rank distances against an n x n array, and against NN-descent.

Made-up rows of 300 columns around 40 directions, 90 neighbours, one thread. Peak memory is that of numpy's arrays
beside the arguments. ``FEDSPAN_NEIGHBOR_ROWS=10000,40000`` says for how many rows (default 10000; the n x n array is
made for at most 10,000).
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.landmarks.parts.neighbor_search import find_neighbors
from fedspan.linalg import LowRankDistances, nearest

SIZES = [int(n) for n in os.environ.get("FEDSPAN_NEIGHBOR_ROWS", "10000").split(",")]
NEIGHBORS = 90


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(40, 300))
    with threadpool_limits(1):
        _descent(_rows(rng, shape, 500))  # compiled when it is first used
        for n in SIZES:
            rows = _rows(rng, shape, n)
            exact, seconds = _timed(lambda rows=rows: nearest(rows, NEIGHBORS)[0])
            tracemalloc.start()
            nearest(rows, NEIGHBORS)
            peak = tracemalloc.get_traced_memory()[1] / 2**30
            tracemalloc.stop()
            print(f"n={n}: in blocks {seconds:.1f} s, {peak:.2f} GiB")
            figures[f"n={n}: GiB of the search in blocks"] = peak
            if n <= 10_000:
                dense, naive = _timed(lambda rows=rows: _dense(rows))
                figures[f"n={n}: n x n float64 / blocks"] = naive / seconds
                figures[f"n={n}: recall of the blocks"] = _recall(exact, dense)
                print(f"{'':8} n x n {naive:.1f} s; recall of the blocks {_recall(exact, dense):.6f}")
            found, descent = _timed(lambda rows=rows: _descent(rows))
            figures[f"n={n}: NN-descent / blocks"] = descent / seconds
            figures[f"n={n}: recall of NN-descent"] = _recall(found, exact)
            print(f"{'':8} NN-descent {descent:.1f} s; its recall {_recall(found, exact):.4f}")
    print("(aims: recall of the blocks .9999 at 10,000 rows, in 0.25 GiB; in 0.6 GiB at 40,000)")
    return figures


def _rows(rng: np.random.Generator, shape: np.ndarray, n: int) -> LowRankDistances:
    X = rng.normal(size=(n, 40)) @ shape + 0.3 * rng.normal(size=(n, 300))
    C = (X / X.std()).astype(np.float32)
    return LowRankDistances(C, np.full(300, -2, dtype=np.float32), np.vecdot(C, C), squared=True)


def _dense(rows: LowRankDistances) -> np.ndarray:
    C = rows.factor.astype(np.float64)
    squares = np.vecdot(C, C)
    D = squares[:, None] + squares - 2 * C @ C.T
    np.fill_diagonal(D, np.inf)
    return np.argpartition(D, NEIGHBORS, axis=1)[:, :NEIGHBORS]


def _descent(rows: LowRankDistances) -> np.ndarray:
    with fs.LocalFederation([fs.Site("all", rows.factor[:1])]).begin("search") as fed:
        return find_neighbors(fed, rows, NEIGHBORS, "descent")[0]


def _timed(search: Callable[[], Any]) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    return search(), time.perf_counter() - began


def _recall(found: np.ndarray, truth: np.ndarray) -> float:
    some = np.random.default_rng(0).choice(len(truth), min(2000, len(truth)), replace=False)
    return float(np.mean([len(np.intersect1d(found[i], truth[i])) for i in some])) / NEIGHBORS


if __name__ == "__main__":
    main()
