"""Generated counts of cells: negative binomial, with effects of sites on genes and unequal types."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import scipy.sparse


def cells(n=900, genes=300, sites=3, types=4, seed=0, missing=True):
    """Return AnnData with `site` and `type` in obs."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(types, n, p=np.arange(types, 0, -1) / (types * (types + 1) / 2))
    site = rng.integers(sites, size=n)
    if missing:  # the rarest type is not at the last site
        site[(kind == types - 1) & (site == sites - 1)] = 0
    base = rng.gamma(0.4, 1.0, genes)
    of_type = np.exp(rng.normal(0.0, 1.2, (types, genes)) * (rng.random((types, genes)) < 0.25))
    of_site = np.exp(rng.normal(0.0, 0.5, (sites, genes)))
    depth = rng.lognormal(0.0, 0.35, n)
    mean = base * of_type[kind] * of_site[site] * depth[:, None]
    counts = rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape)).astype(np.float32)
    obs = pd.DataFrame(
        {"site": np.array([f"lab {i}" for i in range(sites)])[site]}, index=[f"cell {i}" for i in range(n)]
    )
    obs["type"] = pd.Categorical(np.array([f"type {i}" for i in range(types)])[kind])
    var = pd.DataFrame(index=[f"gene {i}" for i in range(genes)])
    return anndata.AnnData(scipy.sparse.csr_matrix(counts), obs=obs, var=var)


def log_counts(adata, target=1e4):
    """Return dense logarithms of scaled counts."""
    X = np.asarray(adata.X.todense(), dtype=np.float64)
    return np.log1p(target * X / np.maximum(X.sum(axis=1, keepdims=True), 1e-300))
