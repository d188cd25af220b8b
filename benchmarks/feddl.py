"""A FedDL round against one that computes the kernel as one writes it first: ``cdist`` in double precision.

Ten sites of 4000 rows and 784 columns, 500 landmarks, gradient only. One thread for everybody, medians of a few rounds
that alternate.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.protocols.feddl import local_pull, reduced

SITES, ROWS, COLUMNS, LANDMARKS = 10, 4000, 784, 500
REPEATS = 3


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    shape = rng.random(COLUMNS)
    parts = [shape * rng.random((ROWS, COLUMNS)) for _ in range(SITES)]
    centre = np.mean([X.mean(axis=0) for X in parts], axis=0)
    scale = float(np.sqrt(np.mean([X.var(axis=0).sum() for X in parts])))
    Y = shape * rng.random((LANDMARKS, COLUMNS))
    figures: dict[str, float] = {}
    times: dict[str, list[float]] = {"cdist": [], "double": [], "single": []}
    with threadpool_limits(1):
        fed = fs.LocalFederation([fs.Site(str(i), X) for i, X in enumerate(parts)])
        for repeat in range(REPEATS + 1):  # the first one, in which sites prepare their rows, does not count
            began = time.perf_counter()
            expected = _plain(parts, Y, 0.5 / scale**2)
            times["cdist"] += [time.perf_counter() - began] * (repeat > 0)
            for precision, dtype, accuracy in (("double", np.float64, 1e-10), ("single", np.float32, 1e-3)):
                prepared = fed.apply(reduced, centre=centre, scale=scale, precision=precision)
                if repeat:  # one lens at a time is kept: a round before the one that is timed prepares the rows
                    prepared.sum(local_pull, Y=((Y - centre) / scale)[:2].astype(dtype), gamma=0.5)
                began = time.perf_counter()
                found = prepared.sum(local_pull, Y=((Y - centre) / scale).astype(dtype), gamma=0.5)["pull"]
                times[precision] += [time.perf_counter() - began] * (repeat > 0)
                apart = np.abs(scale * found - expected).max() / np.abs(expected).max()
                if apart > accuracy:
                    raise RuntimeError(f"{precision} precision is {apart:.0e} away from the plain sum")
    plain, double, single = (statistics.median(times[name]) for name in times)
    for precision, seconds in (("double", double), ("single", single)):
        figures[f"cdist float64 / fedspan, {precision} precision"] = plain / seconds
        print(f"{precision}: {seconds:.2f} s a round, plain {plain:.2f} s: {plain / seconds:.1f}x")
    print("(aim: at least 4x; a round of", SITES, "x", ROWS, "x", COLUMNS, "with", LANDMARKS, "landmarks)")
    return figures


def _plain(parts: list[np.ndarray], Y: np.ndarray, gamma: float) -> np.ndarray:
    total = np.zeros_like(Y)
    for X in parts:
        K = np.exp(-gamma * cdist(X, Y, "sqeuclidean"))
        total += K.T @ X - K.sum(axis=0)[:, None] * Y
    return total


if __name__ == "__main__":
    main()
