"""Scoring rows with a FedPCADetector, many at a time and one at a time, against scikit-learn and plain numpy.

100,000 rows of 39 columns, a subspace of 10 dimensions. Times per row are those of ``score_samples`` and ``score_one``,
with their validation. Scikit-learn has the residual as ``X - inverse_transform(transform(X))`` and the sum of squares,
and the Mahalanobis distance as ``EmpiricalCovariance.mahalanobis``; plain numpy does the same arithmetic without any
validation, which is the least that a loop over rows can do. Columns are not scaled, so that all have the same scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA

import fedspan as fs
from benchmarks.battery.ratio import Ratio, compared

ROWS, COLUMNS, RANK, SITES = 100_000, 39, 10, 10
SINGLES = 500


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS)) + 3.0
    train, sites = X[: ROWS // 10], np.arange(ROWS // 10) % SITES
    pca = PCA(RANK).fit(train)
    mean, V = pca.mean_, pca.components_

    def by_sklearn(batch: np.ndarray) -> np.ndarray:
        rest = batch - pca.inverse_transform(pca.transform(batch))
        return np.einsum("ij,ij->i", rest, rest)

    def by_numpy(batch: np.ndarray) -> np.ndarray:
        rest = batch - mean
        rest -= (rest @ V.T) @ V
        return np.vecdot(rest, rest)

    yield from _compared(
        X,
        "residual",
        fs.FedPCADetector(RANK, scale=False, distance="residual").fit(train, sites=sites),
        by_sklearn,
        by_numpy,
        1.0,
    )

    covariance = EmpiricalCovariance().fit(train)
    P = covariance.precision_

    def squared_distance(batch: np.ndarray) -> np.ndarray:
        rest = batch - mean
        return np.vecdot(rest @ P, rest)

    detector = fs.FedPCADetector(RANK, scale=False, distance="mahalanobis", ridge=1e-12).fit(train, sites=sites)
    by_n = len(train) / (len(train) - 1.0)  # scikit-learn divides by n here, ours by n - 1
    yield from _compared(X, "Mahalanobis distance", detector, covariance.mahalanobis, squared_distance, by_n)


def _compared(
    X: np.ndarray,
    score: str,
    detector: fs.FedPCADetector,
    by_sklearn: Callable[[np.ndarray], np.ndarray],
    by_numpy: Callable[[np.ndarray], np.ndarray],
    factor: float,
) -> Iterator[Ratio]:
    rows = list(X[:SINGLES])
    name = {"residual": "scikit-learn's PCA"}.get(score, "scikit-learn's EmpiricalCovariance")
    ours, theirs = -factor * detector.score_samples(X), by_sklearn(X)
    apart = max(np.abs(scores / theirs - 1.0).max() for scores in (ours, by_numpy(X)))
    if apart > 1e-6:
        raise RuntimeError(f"the scores differ by {apart:.0e}")
    yield from compared(
        f"Anomaly scores ({score}) of {ROWS:,} rows x {COLUMNS}, per row",
        lambda: detector.score_samples(X),
        {name: lambda: by_sklearn(X), "plain numpy, no validation": lambda: by_numpy(X)},
        per=ROWS,
        accuracy=f"relative difference {apart:.0e}",
    )
    yield from compared(
        f"Anomaly score ({score}) of one row x {COLUMNS}",
        lambda: [detector.score_one(x) for x in rows],
        {
            name: lambda: [by_sklearn(x[None]) for x in rows],
            "plain numpy, row by row, no validation": lambda: [by_numpy(x) for x in rows],
        },
        per=SINGLES,
        accuracy=f"relative difference {apart:.0e}",
    )
