"""Exact PCA from the sum of the sites' Gram matrices: one round, whatever the split.

Up per site: d (d + 1) / 2 numbers; down: nothing. Only the sum is needed. Memory d^2 at each site and the coordinator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step
from fedspan.linalg import top_eigenpairs
from fedspan.protocols.blocks import blocks, n_columns
from fedspan.protocols.principal_axes import PrincipalAxes

Matrix = NDArray[np.float64]


@step
def local_gram(site: Site) -> dict[str, Any]:
    """Leaves the site: the upper triangle of ``X'X`` and the number of rows."""
    d = n_columns(site)
    gram = np.zeros((d, d))
    for X in blocks(site):
        gram += X.T @ X
    return {"gram": packed(gram), "n": len(site)}


def covariance_pca(fed: Federation, *, rank: int | None = None) -> PrincipalAxes:
    """Return the `rank` leading principal axes (default: all) of the rows as they are: centre them first."""
    total = fed.sum(local_gram)
    S = unpacked(total["gram"])
    d = len(S)
    k = d if rank is None else min(rank, d)
    scatter, vectors = top_eigenpairs(S, k)
    return PrincipalAxes(vectors.T, np.maximum(scatter, 0.0), float(np.trace(S)), total["n"])


def packed(S: Matrix) -> Matrix:
    """Return the upper triangle of a symmetric matrix (d, d) as a vector: half the bytes."""
    return S[np.triu_indices(len(S))]


def unpacked(triangle: Matrix) -> Matrix:
    """Return the symmetric matrix whose upper triangle is given."""
    d = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    S = np.zeros((d, d))
    S[np.triu_indices(d)] = triangle
    return S + np.triu(S, 1).T
