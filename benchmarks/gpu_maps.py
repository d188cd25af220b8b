"""Maps and landmarks of many rows on a graphics card: seconds from rows in memory to the map, recall, and quality.

1,000,000 made-up rows of 784 columns at ten sites (``FEDSPAN_GPU_ROWS`` for another number): `FedLandmarks` with 500
landmarks and 50 rounds, and `FedUMAP` with its defaults. Then `FedUMAP` of the 70,000 MNIST digits, one digit a site,
where mnist.npz is in the data folder (FEDSPAN_DATA), beside umap-learn on the pooled rows where that is installed, and
`FedTSNE` of the same rows.
``FEDSPAN_DEVICE`` names the device (default: ``cuda``). The first figures of a process include the start of the device.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import fedspan as fs
from fedspan.datasets import load_mnist
from fedspan.errors import DataMissingError
from fedspan.linalg.layout.map_quality import map_neighbors

ROWS = int(os.environ.get("FEDSPAN_GPU_ROWS", "1000000"))
DEVICE = os.environ.get("FEDSPAN_DEVICE", "cuda")
COLUMNS, GROUPS, INNER, SITES = 784, 20, 40, 10


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    X, groups = made_up(ROWS)
    fed, seconds = _timed(lambda: fs.federate(X, sites=np.arange(ROWS) % SITES))
    print(f"{ROWS:,} x {COLUMNS} rows at {SITES} sites: split in {seconds:.1f} s")
    warnings.simplefilter("ignore")
    for turn in ("first", "again"):
        model, seconds = _timed(lambda: fs.FedLandmarks(500, device=DEVICE, random_state=0).fit(fed))
        print(f"FedLandmarks, 500 landmarks, 50 rounds, {turn}: {seconds:.2f} s; MMD^2 {model.mmd2_:.4g}", end="; ")
        print(_where(model, seconds))
        figures[f"FedLandmarks, {turn}: s"] = seconds
    exact, seconds = _timed(lambda: fs.FedLandmarks(500, device=DEVICE, random_state=0, precision="double").fit(fed))
    apart = float(np.abs(exact.landmarks_ - model.landmarks_).max() / exact.scale_)
    print(f"the same in double precision: {seconds:.2f} s; MMD^2 {exact.mmd2_:.4g}; largest difference {apart:.1e}")
    figures["FedLandmarks, single against double: largest difference"] = apart
    fed = fs.federate(X, sites=np.arange(ROWS) % SITES)
    for turn in ("first", "again"):
        model, seconds = _timed(lambda: fs.FedUMAP(device=DEVICE, random_state=0).fit(fed))
        recall = model.run_.metric("search_recall")[-1]
        some = np.random.default_rng(0).choice(ROWS, min(ROWS, 20_000), replace=False)
        order = np.argsort((np.arange(ROWS) % SITES).astype(str), kind="stable")
        found = _votes(model.embedding_[some], groups[order][some])
        print(f"FedUMAP, {turn}: {seconds:.1f} s; recall {recall:.4f}, CA10 of {len(some):,} {found:.3f}", end="; ")
        print(f"{(model.run_.bytes_up + model.run_.bytes_down) / 1e6:.0f} MB; {model.axes_.shape[0]} axes", end="; ")
        print(_where(model, seconds))
        figures |= {f"FedUMAP, {turn}: s": seconds, "FedUMAP: recall": recall}
    return figures | _digits()


def _where(model: Any, seconds: float) -> str:
    """Return the seconds of each step at all sites, and those of the coordinator."""
    steps: dict[str, float] = defaultdict(float)
    for call in model.run_.calls:
        steps[call.step] += call.seconds
    steps["coordinator"] = seconds - sum(steps.values())
    return ", ".join(f"{step} {took:.2f} s" for step, took in steps.items())


def made_up(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 784) of twenty groups near 40 directions, in single precision, and their groups."""
    rng = np.random.default_rng(0)
    groups = rng.integers(GROUPS, size=n)
    centres = 4 * rng.normal(size=(GROUPS, INNER)).astype(np.float32)
    axes = rng.normal(size=(INNER, COLUMNS)).astype(np.float32)
    X = np.empty((n, COLUMNS), dtype=np.float32)
    for start in range(0, n, 50_000):
        part = slice(start, start + 50_000)
        inner = centres[groups[part]] + rng.standard_normal((len(groups[part]), INNER), dtype=np.float32)
        X[part] = inner @ axes + rng.standard_normal((len(inner), COLUMNS), dtype=np.float32)
    return X, groups


def _digits() -> dict[str, float]:
    try:
        mnist = load_mnist()
    except DataMissingError as missing:
        print(f"left out: {missing}")
        return {}
    X, y = mnist.data / np.float32(255), mnist.target.astype(int)
    model, seconds = _timed(lambda: fs.FedUMAP(device=DEVICE, random_state=0).fit(X, sites=y))
    found, recall = _votes(model.embedding_, y), model.run_.metric("search_recall")[-1]
    print(f"FedUMAP of {len(X):,} MNIST digits: {seconds:.1f} s; CA10 {found:.4f}; recall {recall:.4f}")
    again = fs.FedUMAP(device=DEVICE, random_state=0).fit(X, sites=y)
    print(f"the same seed gives the same map: {np.array_equal(again.embedding_, model.embedding_)}")
    figures = {"FedUMAP, MNIST: s": seconds, "FedUMAP, MNIST: CA10": found}
    model, seconds = _timed(lambda: fs.FedTSNE(device=DEVICE, random_state=0).fit(X, sites=y))
    figures |= {"FedTSNE, MNIST: s": seconds, "FedTSNE, MNIST: CA10": _votes(model.embedding_, y)}
    print(f"FedTSNE: {seconds:.1f} s; CA10 {figures['FedTSNE, MNIST: CA10']:.4f}; KL {model.kl_divergence_:.3f}")
    if importlib.util.find_spec("umap") is not None:
        import umap

        theirs, seconds = _timed(lambda: umap.UMAP(random_state=0).fit_transform(X))
        figures["umap-learn, MNIST: CA10"] = _votes(theirs, y)
        print(f"umap-learn: {seconds:.1f} s; CA10 {figures['umap-learn, MNIST: CA10']:.4f}")
    return figures


def _votes(Z: np.ndarray, y: np.ndarray) -> float:
    near = y[map_neighbors(Z, 10)]
    votes = np.zeros((len(y), int(y.max()) + 1), dtype=np.int8)
    np.add.at(votes, (np.arange(len(y))[:, None], near), 1)
    return float(np.mean(votes.argmax(axis=1) == y))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began
