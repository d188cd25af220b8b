"""Scoring rows with a FedPCADetector, against scikit-learn's PCA residual on the same rows in the same run.

100,000 rows of 39 columns, a subspace of 10 dimensions, one thread. Times per row are those of ``score_samples``, with
its validation; scikit-learn's are ``X - inverse_transform(transform(X))`` and the sum of squares, and of one row at a
time the same. Processor time, so that other programs do not count; the medians of interleaved repeats.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

import fedspan as fs

ROWS, COLUMNS, RANK, SITES = 100_000, 39, 10, 10
REPEATS = 9
SINGLES = 2_000


def microseconds(functions: dict[str, Callable[[], object]], units: int) -> dict[str, float]:
    """Return the median time of each function per unit of what it does."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, function in functions.items():
            function()  # whatever the one before it has pushed out of the caches is back
            start = time.process_time()
            function()
            times[name].append((time.process_time() - start) / units * 1e6)
    return {name: statistics.median(spent[1:]) for name, spent in times.items()}


def main() -> dict[str, float]:
    """Print and return microseconds, and how many times slower scikit-learn is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS)) + 3.0
    single, rows = X.astype(np.float32), list(X[:SINGLES])
    train, sites = X[: ROWS // 10], np.arange(ROWS // 10) % SITES
    detectors = {
        name: fs.FedPCADetector(RANK, score=name).fit(train, sites=sites)
        for name in ("residual", "mahalanobis", "combined")
    }
    residual = detectors["residual"]
    pca = PCA(RANK).fit(train)

    def by_pca(batch: np.ndarray) -> np.ndarray:
        rest = batch - pca.inverse_transform(pca.transform(batch))
        return np.einsum("ij,ij->i", rest, rest)

    with threadpool_limits(1):
        batched = microseconds(
            {
                f"batched, {name}": lambda detector=detector: detector.score_samples(X)
                for name, detector in detectors.items()
            }
            | {
                "batched, residual, float32": lambda: residual.score_samples(single),
                "batched, scikit-learn's PCA": lambda: by_pca(X),
            },
            ROWS,
        )
        alone = microseconds(
            {
                f"score_one, {name}": lambda detector=detector: [detector.score_one(x) for x in rows]
                for name, detector in detectors.items()
            }
            | {"one row, scikit-learn's PCA": lambda: [by_pca(x[None]) for x in rows[: SINGLES // 10] * 10]},
            SINGLES,
        )
    result = batched | alone
    for name, value in result.items():
        print(f"{value:9.3f} us per row  {name}")
    for name, ours in (
        ("batched, scikit-learn's PCA", "batched, residual"),
        ("one row, scikit-learn's PCA", "score_one, residual"),
    ):
        result[f"{name}, times ours"] = result[name] / result[ours]
        print(f"{result[name] / result[ours]:9.1f}x {name}, times ours")
    print(f"(goal: at most 0.2 batched and 20 alone, for the residual; {ROWS:,} x {COLUMNS}, k = {RANK})")
    return result
