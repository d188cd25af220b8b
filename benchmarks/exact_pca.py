"""Exact federated PCA on the embedded engine against scikit-learn's PCA on the pooled rows."""

from __future__ import annotations

import statistics
import time

import numpy as np
from sklearn.decomposition import PCA

import fedspan as fs


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    ratios = {}
    for n, d, sites in ((20_000, 40, 10), (20_000, 40, 100), (20_000, 300, 10)):
        X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
        fed = fs.federate(X, sites=np.arange(n) % sites)
        times: dict[str, list[float]] = {"pooled": [], "federated": []}
        for _ in range(7):
            for name, model, data in (("pooled", PCA(10), X), ("federated", fs.FedPCA(10), fed)):
                start = time.perf_counter()
                model.fit(data)
                times[name].append(time.perf_counter() - start)
        pooled, federated = (statistics.median(times[name]) for name in ("pooled", "federated"))
        ratios[f"federated / pooled time, {n} x {d}, {sites} sites"] = federated / pooled
    for name, ratio in ratios.items():
        print(f"{ratio:8.2f}x {name}")
    return ratios
