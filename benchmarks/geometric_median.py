"""Speed of the geometric median at equal accuracy, as ratios within one run.

50 vectors of 100,000 numbers, ten of them far away, against ByzFL's ``GeometricMedian`` (20 iterations), geom_median
(``ftol=1e-12``) and a plain Weiszfeld iteration in numpy. Those that are not installed are left out, and said so. One
thread for everybody.
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

L, D, FAR = 50, 100_000, 10
REPEATS = 5
ACCURACY = 1e-10  # relative objective excess that counts as equal


def main() -> dict[str, float]:
    """Print a table; return how many times slower the others are, and by how much relatively they miss the minimum."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(L, D))
    points[:FAR] = 10.0 * points[:FAR] + 3.0
    with threadpool_limits(1):
        result = geometric_median(points)
        best = result.distances.sum()
        ours = _seconds(lambda: geometric_median(points))
        ratios = {"certified relative gap": result.gap / best}
        print(f"geometric median of {L} x {D:,}: certified relative gap {result.gap / best:.1e}")
        rivals = _rivals(points)
        print(f"{'':34}{'seconds':>10}{'times ours':>12}{'objective excess':>18}")
        print(f"{'fedspan':34}{ours:10.3f}{1.0:12.1f}")
        for name, median in rivals.items():
            seconds = _seconds(median)
            excess = float(np.linalg.norm(points - median(), axis=1).sum() / best - 1.0)
            note = "" if excess <= ACCURACY else "  (less accurate)"
            print(f"{name:34}{seconds:10.3f}{seconds / ours:12.1f}{excess:18.1e}{note}")
            ratios[f"{name}: times slower"] = seconds / ours
            ratios[f"{name}: relative objective excess"] = excess
    return ratios


def _seconds(run: Callable[[], object]) -> float:
    """The fastest of a few runs: the one that others on the machine disturbed least."""
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return float(best)


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
        rivals["ByzFL, T=20, torch"] = lambda: rule(tensor).numpy()
    if not importlib.util.find_spec("geom_median"):
        print("geom_median is not installed: it is left out")
    else:
        compute = importlib.import_module("geom_median.torch").compute_geometric_median
        rivals["geom_median, ftol=1e-12, torch"] = lambda: np.asarray(compute(tensor, ftol=1e-12).median)
    return rivals


def _byzfl_aggregators() -> types.ModuleType | None:
    """ByzFL's aggregators without the package's own imports, which want torchvision and more."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        return None
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules.setdefault("byzfl", package)
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
