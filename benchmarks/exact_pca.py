"""Exact federated PCA on the embedded engine against scikit-learn's PCA on the pooled rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA

import fedspan as fs
from benchmarks.battery.ratio import Fresh, Ratio, compared

RANK = 10


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    for n, d, sites in ((20_000, 40, 10), (20_000, 40, 100), (20_000, 300, 10)):
        X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
        where = np.arange(n) % sites
        pooled, ours = PCA(RANK).fit(X), fs.FedPCA(RANK).fit(X, sites=where)
        V, U = pooled.components_, ours.components_
        apart = np.linalg.norm(U - (U @ V.T) @ V, 2)
        yield from compared(
            f"Exact PCA, {RANK} of {d} components of {n:,} rows at {sites} sites",
            Fresh(lambda X=X, where=where: fs.federate(X, sites=where), lambda fed: fs.FedPCA(RANK).fit(fed)),
            {"scikit-learn's PCA of the pooled rows": lambda X=X: PCA(RANK).fit(X)},
            accuracy=f"sine of the largest angle between the two {apart:.0e}",
        )
