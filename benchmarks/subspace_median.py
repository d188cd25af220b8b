"""The subspace median against the same thing done with n x n projectors; by name, its peak memory too.

The naive way is Weiszfeld's iteration on dense projectors, run to a distance of 1e-10 from the median, and the leading
eigenvectors of the dense median, which ours returns as well. How many iterations that takes is known without doing them
all: weights and distances of the iterates depend on the inner products of the projectors alone. Where it would take
long, a few iterations are timed and the rest is counted.

Two ways to be naive: plain numpy on the whole stack, or one projector at a time, which stays in the cache.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

from benchmarks.battery.ratio import Ratio, Spent, clocks, processor_seconds, seconds_of
from fedspan.linalg import subspace_median

ACCURACY = 1e-10  # Frobenius distance of the naive median to ours at which both count as equally accurate
TIMED_ITERATIONS = 3
TURNS = 3
PROCESSES = 1  # it takes long


def compare() -> Iterator[Ratio]:
    for n, r, L, in_full in [(1000, 60, 3, True), (1000, 10, 100, False)]:
        bases = _sites(n, r, L)
        result = subspace_median(bases)
        count = _naive_iterations(bases, result.weights)
        timed = count if in_full else TIMED_ITERATIONS
        ways = {"plain numpy": _at_once, "one projector at a time": _one_by_one}
        ours: list[Spent] = []
        naive: dict[str, list[Spent]] = {way: [] for way in ways}
        for turn in range(TURNS + 1):
            seconds = seconds_of(lambda bases=bases: subspace_median(bases))
            ours += [seconds] * (turn > 0)
            for way, distances in ways.items():
                seconds, apart = _naive(bases, result.weights, count, timed, distances)
                naive[way] += [seconds] * (turn > 0)
        arrived = f", {apart:.0e} from ours" if in_full else f" (counted; {timed} of them were timed)"
        gap = result.gap / result.distances.sum()
        for way, spent in naive.items():
            yield Ratio.of(
                f"Subspace median of {L} subspaces of {r} dimensions in {n:,}",
                f"dense projectors, {way}",
                ours,
                spent,
                f"{count} iterations{arrived}; ours certified to {gap:.0e}",
            )


def main() -> dict[str, float]:
    with threadpool_limits(1):
        return _peak_memory(10_000, 20, 50)


def _sites(n: int, r: int, L: int) -> np.ndarray:
    """Bases 0.3 from a common subspace (SD_F), like those of the paper's second table; a third of the sites lie."""
    rng = np.random.default_rng(0)
    shared = np.linalg.qr(rng.normal(size=(n, r)))[0]
    honest = [np.linalg.qr(shared + 0.3 * rng.normal(size=(n, r)) / np.sqrt(n * r))[0] for _ in range(L - L // 3)]
    return np.stack(honest + [np.linalg.qr(rng.normal(size=(n, r)))[0] for _ in range(L // 3)])


def _naive_iterations(bases: np.ndarray, median: np.ndarray) -> int:
    """Follow the weights of the naive iterates from their mean until they make the median to ACCURACY."""
    L, n, r = bases.shape
    stacked = bases.transpose(1, 0, 2).reshape(n, L * r)
    overlap = ((stacked.T @ stacked) ** 2).reshape(L, r, L, r).sum(axis=(1, 3))
    squared = 2.0 * (r - overlap)
    weights = np.full(L, 1.0 / L)
    for iteration in range(10_000):
        apart = weights - median
        if np.sqrt(max(apart @ overlap @ apart, 0.0)) <= ACCURACY:
            return iteration
        pulls = 1.0 / np.sqrt(squared @ weights - weights @ squared @ weights / 2.0)
        weights = pulls / pulls.sum()
    raise RuntimeError("the naive iteration does not get there")


def _at_once(P: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.linalg.norm(P - Z, axis=(1, 2))


def _one_by_one(P: np.ndarray, Z: np.ndarray) -> np.ndarray:
    return np.array([np.linalg.norm(projector - Z) for projector in P])


def _naive(
    bases: np.ndarray,
    median: np.ndarray,
    count: int,
    timed: int,
    distances: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[Spent, float]:
    """Weiszfeld's iteration as the formula has it, on an array (L, n, n) of projectors, which is what one writes first.

    Returns seconds for `count` iterations, of which `timed` are done, and the distance to our median after those.
    """
    n, r = bases.shape[1:]
    start = clocks()
    P = bases @ bases.transpose(0, 2, 1)
    Z = P.mean(axis=0)
    built = clocks()
    for _ in range(timed):
        pulls = 1.0 / distances(P, Z)
        Z = np.tensordot(pulls / pulls.sum(), P, axes=1)
    iterated = clocks()
    scipy.linalg.eigh(Z, subset_by_index=(n - r, n - 1))
    rest = clocks() - iterated + built - start
    return rest + (iterated - built) * count / timed, float(np.linalg.norm(np.tensordot(median, P, axes=1) - Z))


def _peak_memory(n: int, r: int, L: int) -> dict[str, float]:
    bases = _sites(n, r, L)
    seconds = processor_seconds(lambda: subspace_median(bases))
    tracemalloc.start()
    result = subspace_median(bases)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    dense = L * n * n * 8 / 1e9
    print(
        f"({n}, {r}, {L}): {seconds:.2f} s, peak {peak:.0f} MB beyond the bases' {bases.nbytes / 1e6:.0f} MB"
        f" (the projectors: {dense:.0f} GB), relative gap {result.gap / result.distances.sum():.1e}"
    )
    return {
        f"({n}, {r}, {L}): peak memory in MB with the bases": peak + bases.nbytes / 1e6,
        f"({n}, {r}, {L}): seconds": seconds,
    }
