"""A FedDL round against one that computes the kernel as one writes it: ``cdist``, or scikit-learn's ``rbf_kernel``.

Ten sites of 4000 rows and 784 columns, 500 landmarks, gradient only. Ours centres, scales and rounds its rows once and
uses them in all rounds: that is not in the ratio, and what the first round takes with it is printed beside. The others
prepare nothing, but for rows in single precision where ``rbf_kernel`` is given those; ``cdist`` has double alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel

import fedspan as fs
from benchmarks.battery.ratio import Fresh, Ratio, compared, duration, processor_seconds
from fedspan.landmarks.feddl import local_pull, reduced

SITES, ROWS, COLUMNS, LANDMARKS = 10, 4000, 784, 500
TURNS = 3
CDIST = "cdist, double precision"
PROCESSES = 1  # it takes long


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    shape = rng.random(COLUMNS)
    parts = [shape * rng.random((ROWS, COLUMNS)) for _ in range(SITES)]
    centre = np.mean([X.mean(axis=0) for X in parts], axis=0)
    scale = float(np.sqrt(np.mean([X.var(axis=0).sum() for X in parts])))
    Y = shape * rng.random((LANDMARKS, COLUMNS))
    gamma = 0.5 / scale**2
    expected = _plain(_by_cdist, parts, Y, gamma)
    for precision, dtype, accuracy in (("double", np.float64, 1e-10), ("single", np.float32, 1e-3)):
        landmarks = ((Y - centre) / scale).astype(dtype)

        def prepared(precision: str = precision) -> fs.Federation:
            fed = fs.LocalFederation([fs.Site(str(i), X) for i, X in enumerate(parts)])
            return fed.apply(reduced, centre=centre, scale=scale, precision=precision)

        def pull(fed: fs.Federation, landmarks: np.ndarray = landmarks) -> np.ndarray:
            return fed.sum(local_pull, Y=landmarks, gamma=0.5)["pull"]

        second = f"scikit-learn's rbf_kernel, {precision} precision"
        rows, points = [X.astype(dtype) for X in parts], Y.astype(dtype)
        kernels: dict[str, Callable[[], np.ndarray]] = {
            CDIST: lambda: _plain(_by_cdist, parts, Y, gamma),
            second: lambda rows=rows, points=points: _plain(rbf_kernel, rows, points, gamma),
        }
        fed = prepared()
        ours, theirs = _apart(scale * pull(fed), expected), _apart(kernels[second](), expected)
        if max(ours, theirs) > accuracy:
            raise RuntimeError(
                f"in {precision} precision ours is {ours:.0e} and rbf_kernel {theirs:.0e} from cdist's sum"
            )
        first = f"ours takes {duration(processor_seconds(Fresh(prepared, pull)))} with its rows to prepare"
        yield from compared(
            f"FedDL round, {SITES} sites of {ROWS:,} rows x {COLUMNS}, {LANDMARKS} landmarks, {precision} precision",
            lambda fed=fed: pull(fed),
            kernels,
            turns=TURNS,
            accuracy={
                CDIST: f"relative difference {ours:.0e}; {first}",
                second: f"relative difference from cdist's {theirs:.0e}, ours {ours:.0e}; {first}",
            },
        )


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _by_cdist(X: np.ndarray, Y: np.ndarray, gamma: float) -> np.ndarray:
    return np.exp(-gamma * cdist(X, Y, "sqeuclidean"))


def _plain(kernel: Callable[..., np.ndarray], parts: list[np.ndarray], Y: np.ndarray, gamma: float) -> np.ndarray:
    """The sum over sites of the kernel's gradient: whole arrays, site by site."""
    total = np.zeros_like(Y)
    for X in parts:
        K = kernel(X, Y, gamma=gamma)
        total += K.T @ X - K.sum(axis=0)[:, None] * Y
    return total
