"""A FedDL round against one that computes the kernel as one writes it first: ``cdist`` in double precision.

Ten sites of 4000 rows and 784 columns, 500 landmarks, gradient only. Rows are prepared once and then used in all
rounds: that does not count here, on either side.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

import fedspan as fs
from benchmarks.battery.ratio import Ratio, compared
from fedspan.protocols.feddl import local_pull, reduced

SITES, ROWS, COLUMNS, LANDMARKS = 10, 4000, 784, 500
TURNS = 3
PROCESSES = 1  # it takes long


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    shape = rng.random(COLUMNS)
    parts = [shape * rng.random((ROWS, COLUMNS)) for _ in range(SITES)]
    centre = np.mean([X.mean(axis=0) for X in parts], axis=0)
    scale = float(np.sqrt(np.mean([X.var(axis=0).sum() for X in parts])))
    Y = shape * rng.random((LANDMARKS, COLUMNS))
    expected = _plain(parts, Y, 0.5 / scale**2)
    for precision, dtype, accuracy in (("double", np.float64, 1e-10), ("single", np.float32, 1e-3)):
        fed = fs.LocalFederation([fs.Site(str(i), X) for i, X in enumerate(parts)])
        prepared = fed.apply(reduced, centre=centre, scale=scale, precision=precision)
        landmarks = ((Y - centre) / scale).astype(dtype)

        def pull(prepared: fs.Federation = prepared, landmarks: np.ndarray = landmarks) -> np.ndarray:
            return prepared.sum(local_pull, Y=landmarks, gamma=0.5)["pull"]

        apart = np.abs(scale * pull() - expected).max() / np.abs(expected).max()
        if apart > accuracy:
            raise RuntimeError(f"{precision} precision is {apart:.0e} away from the plain sum")
        yield from compared(
            f"FedDL round, {SITES} sites of {ROWS:,} rows x {COLUMNS}, {LANDMARKS} landmarks, {precision} precision",
            pull,
            {"cdist in double precision": lambda: _plain(parts, Y, 0.5 / scale**2)},
            turns=TURNS,
            accuracy=f"relative difference {apart:.0e}",
        )


def _plain(parts: list[np.ndarray], Y: np.ndarray, gamma: float) -> np.ndarray:
    """The sum over sites of the kernel's gradient: the kernel by `cdist` and `exp`, whole arrays, site by site."""
    total = np.zeros_like(Y)
    for X in parts:
        K = np.exp(-gamma * cdist(X, Y, "sqeuclidean"))
        total += K.T @ X - K.sum(axis=0)[:, None] * Y
    return total
