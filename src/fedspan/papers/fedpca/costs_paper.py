"""What the methods cost: bytes on the way, time and memory to score a row, and what a detector keeps."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.papers.fedpca.detection_paper import Detections
from fedspan.papers.fedpca.methods_paper import FittedScores, bytes_per_round
from fedspan.papers.results_paper import Clouds, Table

AXES = ("dur", "stcpb", "sinpkt")


def cost_table(found: Detections, repeats: int = 5) -> Table:
    """Return bytes per round and in all, seconds to fit, and the cost of scoring."""
    X = found.traffic.X_test[:50_000]
    rows = []
    for name, fitted in found.fitted.items():
        record = fitted.record
        if record is None:
            continue
        step, per_round = bytes_per_round(record)
        in_all = (record.bytes_up + record.bytes_down) / len(record.sites)
        score = float(np.median([_seconds(fitted, X) for _ in range(repeats)])) / len(X)
        traffic = [step, f"{per_round:,.0f}", f"{in_all:,.0f}"]
        times = [f"{fitted.seconds:.1f}", f"{1e6 * score:.2f}"]
        rows.append([name, *traffic, *times, f"{_peak(fitted, X) / 2**20:.1f}", f"{_file_size(fitted) / 1000:.1f}"])
    return Table(
        f"{found.traffic.name}: what the methods cost",
        ["method", "step", "bytes/site/round", "bytes/site in all", "fit, s", "us/row", "peak MiB", "file kB"],
        rows,
        "One seed. Bytes both ways: of the step that trains, and in all, with the threshold's. "
        f"Scoring {len(X):,} rows at once, the median of {repeats} times, one thread; the "
        "peak is what scoring takes beyond the rows. "
        "All sites' fitting one after the other. Self-learning sends its models, which only scoring elsewhere needs.",
    )


def views(found: Detections, names: Sequence[str], rows: int = 400) -> Clouds:
    """Return three columns of normal and attack rows, before and after reconstruction by some methods."""
    traffic = found.traffic
    columns = [list(traffic.features).index(axis) for axis in AXES]
    rng = np.random.default_rng(0)
    groups = {
        group: rng.choice(np.flatnonzero(traffic.y_test == label), rows, replace=False)
        for label, group in enumerate(("normal", "attack"))
    }
    scaler = found.fitted["exact (covariance)"].model
    made = {"before": {group: (traffic.X_test[of] - scaler.mean_) / scaler.scale_ for group, of in groups.items()}}
    for name in names:
        model = found.fitted[name].model
        made[f"after: {name}"] = {group: _reconstructed(model, traffic.X_test[of]) for group, of in groups.items()}
    pictures = {title: _clipped({group: Z[:, columns] for group, Z in of.items()}) for title, of in made.items()}
    return Clouds(
        f"{traffic.name}: {', '.join(AXES)} before and after reconstruction",
        AXES,
        pictures,
        f"{rows} normal rows and as many attacks of the test set, standardised. What a reconstruction leaves out is "
        "the anomaly score. The largest and the least one percent of an axis are drawn at its end.",
    )


def _clipped(groups: Mapping[str, Matrix]) -> dict[str, list[list[float]]]:
    """Return the points with their extremes at the 1st and the 99th percentile: a few would hide all others."""
    low, high = np.quantile(np.concatenate(list(groups.values())), (0.01, 0.99), axis=0)
    return {group: np.clip(points, low, high).tolist() for group, points in groups.items()}


def _reconstructed(model: Any, X: Matrix) -> Matrix:
    """Return what a model makes of rows, standardised; of self-learning, the first site's model."""
    if not hasattr(model, "components_"):
        return np.asarray((model.reconstruct(X) - model.mean_) / model.scale_)
    U, mean, scale = model.components_, model.mean_, model.scale_
    if U.ndim == 3:
        U, mean, scale = U[0], mean[0], scale[0]
    Z = (X - mean) / scale
    return np.asarray((Z @ U.T) @ U)


def _seconds(fitted: FittedScores, X: Matrix) -> float:
    start = time.perf_counter()
    fitted.model.score_samples(X)
    return time.perf_counter() - start


def _peak(fitted: FittedScores, X: Matrix) -> float:
    tracemalloc.start()
    fitted.model.score_samples(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def _file_size(fitted: FittedScores) -> int:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.fedspan"
        fitted.model.save(path)
        return path.stat().st_size
