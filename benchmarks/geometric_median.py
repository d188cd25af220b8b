"""The geometric median against ByzFL, geom_median and Weiszfeld's iteration in numpy.

50 vectors of 100,000 numbers; ByzFL's ``GeometricMedian`` with the 3 iterations of its default, and with 20, which take
it to the last digits on both data sets; geom_median with ``ftol=1e-12``. By how much each misses the minimum,
relatively, is printed beside the ratio. ByzFL has no stopping rule: a caller that needs few iterations has it faster.

How long the iterations of the others take hangs on the data: vectors of independent numbers are nearly equidistant in
so many dimensions, and a few iterations do; gradients that share a direction, differ in noise and are attacked take
more.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.battery.ratio import LeftOut, Ratio, compared
from fedspan.linalg import geometric_median

L, D, BAD = 50, 100_000, 10
ROUNDING = 1e-14


def compare() -> Iterator[Ratio | LeftOut]:
    for data, points in _data_sets().items():
        found = geometric_median(points)
        peers, missing = _peers(points)
        least, certified = found.distances.sum(), f"ours proved within {found.gap / found.distances.sum():.0e}"
        accuracy = {name: f"{_excess(points, median(), least)}; {certified}" for name, median in peers.items()}
        yield from missing
        yield from compared(
            f"Geometric median of {L} vectors of {D:,} numbers: {data}",
            lambda points=points: geometric_median(points).point,
            peers,
            accuracy=accuracy,
        )


def _excess(points: np.ndarray, point: np.ndarray, least: float) -> str:
    excess = float(np.linalg.norm(points - point, axis=1).sum() / least - 1.0)
    return f"{excess:.0e} above the least sum" if excess > ROUNDING else "at the least sum"


def _data_sets() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    even = rng.normal(size=(L, D))
    even[:BAD] = 10.0 * even[:BAD] + 3.0
    shared, noise = rng.normal(size=D), np.exp(rng.normal(size=(L, 1)))
    attacked = shared + noise * rng.normal(size=(L, D))
    attacked[:BAD] = -10.0 * shared + 0.1 * rng.normal(size=(BAD, D))
    return {"independent, ten far away": even, "noisy gradients, ten reversed": attacked}


def _peers(points: np.ndarray) -> tuple[dict[str, Callable[[], np.ndarray]], list[LeftOut]]:
    peers: dict[str, Callable[[], np.ndarray]] = {"Weiszfeld's iteration in numpy": lambda: _weiszfeld(points)}
    missing = []
    byzfl = _byzfl_aggregators()
    if byzfl is None:
        missing.append(LeftOut("geometric_median", "byzfl or torch is not installed", "ByzFL"))
    else:
        tensor = _tensor(points)
        for rule, words in ((byzfl.GeometricMedian(), " (its default)"), (byzfl.GeometricMedian(T=20), "")):
            peers[f"ByzFL, T={rule.T}{words}, numpy"] = lambda rule=rule: rule(points)
            peers[f"ByzFL, T={rule.T}{words}, torch"] = lambda rule=rule: np.asarray(rule(tensor))
    if not importlib.util.find_spec("geom_median") or not importlib.util.find_spec("torch"):
        missing.append(LeftOut("geometric_median", "geom_median or torch is not installed", "geom_median"))
    else:
        tensor = _tensor(points)
        compute = importlib.import_module("geom_median.torch").compute_geometric_median
        peers["geom_median, ftol=1e-12, torch"] = lambda: np.asarray(compute(tensor, ftol=1e-12).median)
    return peers, missing


def _tensor(points: np.ndarray) -> object:
    import torch

    torch.set_num_threads(1)
    return torch.from_numpy(points)


def _byzfl_aggregators() -> types.ModuleType | None:
    """ByzFL's aggregators without the package's own imports, which want torchvision and seaborn."""
    if not importlib.util.find_spec("torch"):
        return None
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        if spec is None or spec.submodule_search_locations is None:
            return None
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators.aggregators")


def _weiszfeld(points: np.ndarray) -> np.ndarray:
    """Weiszfeld's iteration from the mean, in whole-array numpy, until the objective no longer falls.

    What one writes from the formula: distances, their inverses as weights, the weighted mean by one product.
    """
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
