"""Speed of the geometric median at equal accuracy, as ratios within one run.

50 vectors of 100,000 numbers, against ByzFL's ``GeometricMedian`` (20 iterations), geom_median (``ftol=1e-12``) and a
plain Weiszfeld iteration in numpy. What is not installed is left out, and said so. One thread for everybody.

How long the iterations of the others take hangs on the data: vectors of independent numbers are nearly equidistant in
so many dimensions, and a few iterations do; gradients that share a direction, differ in noise and are attacked take
more.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
import types
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from fedspan.linalg import geometric_median

L, D, BAD = 50, 100_000, 10
REPEATS = 5
ACCURACY = 1e-10  # relative objective excess that counts as equal


def main() -> dict[str, float]:
    """Print a table; return how many times slower the others are, and by how much relatively they miss the minimum."""
    ratios = {}
    with threadpool_limits(1):
        for data, points in _data_sets().items():
            result = geometric_median(points)
            best = result.distances.sum()
            medians = {"fedspan": lambda points=points: geometric_median(points).point} | _rivals(points)
            seconds = _seconds(medians)
            print(f"{L} x {D:,}, {data}: certified relative gap {result.gap / best:.1e}")
            print(f"{'':34}{'seconds':>10}{'times ours':>12}{'objective excess':>18}")
            for name, median in medians.items():
                ratio = seconds[name] / seconds["fedspan"]
                excess = float(np.linalg.norm(points - median(), axis=1).sum() / best - 1.0)
                note = "" if excess <= ACCURACY else "  (less accurate)"
                print(f"{name:34}{seconds[name]:10.3f}{ratio:12.1f}{excess:18.1e}{note}")
                ratios[f"{data}, {name}: times slower"] = ratio
                ratios[f"{data}, {name}: relative objective excess"] = excess
    return ratios


def _data_sets() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    even = rng.normal(size=(L, D))
    even[:BAD] = 10.0 * even[:BAD] + 3.0
    shared, noise = rng.normal(size=D), np.exp(rng.normal(size=(L, 1)))
    attacked = shared + noise * rng.normal(size=(L, D))
    attacked[:BAD] = -10.0 * shared + 0.1 * rng.normal(size=(BAD, D))
    return {"independent numbers, ten far away": even, "noisy gradients, ten reversed": attacked}


def _seconds(runs: dict[str, Callable[[], np.ndarray]]) -> dict[str, float]:
    """The fastest of a few runs each, in turns: what else the machine does then hits all alike."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _rivals(points: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    rivals: dict[str, Callable[[], np.ndarray]] = {"Weiszfeld in numpy": lambda: _weiszfeld(points)}
    if not importlib.util.find_spec("torch"):
        print("torch is not installed: ByzFL and geom_median are left out")
        return rivals
    import torch

    torch.set_num_threads(1)
    tensor = torch.from_numpy(points)
    byzfl = _byzfl_aggregators()
    if byzfl is None:
        print("byzfl is not installed: ByzFL is left out")
    else:
        rule = byzfl.GeometricMedian(T=20)
        rivals["ByzFL, T=20, numpy"] = lambda: rule(points)
        rivals["ByzFL, T=20, torch"] = lambda: np.asarray(rule(tensor))
    if not importlib.util.find_spec("geom_median"):
        print("geom_median is not installed: it is left out")
    else:
        compute = importlib.import_module("geom_median.torch").compute_geometric_median
        rivals["geom_median, ftol=1e-12, torch"] = lambda: np.asarray(compute(tensor, ftol=1e-12).median)
    return rivals


def _byzfl_aggregators() -> types.ModuleType | None:
    """ByzFL's aggregators without the package's own imports, which want torchvision and more."""
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        if spec is None or spec.submodule_search_locations is None:
            return None
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators.aggregators")


def _weiszfeld(points: np.ndarray) -> np.ndarray:
    z = points.mean(axis=0)
    before = np.inf
    for _ in range(1000):
        distances = np.linalg.norm(points - z, axis=1)
        if before - distances.sum() <= 1e-13 * distances.sum():
            break
        before = distances.sum()
        pulls = 1.0 / distances
        z = pulls / pulls.sum() @ points
    return z


if __name__ == "__main__":
    main()
