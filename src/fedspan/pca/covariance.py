"""Exact PCA from the sum of the sites' Gram matrices: one round, whatever the split.

Up per site: d (d + 1) / 2 numbers; down: nothing. Only the sum is needed. Memory d^2 at each site and the coordinator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.federation import Federation, Site, step
from fedspan.linalg import top_eigenpairs
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.sums.moments import means_of_rows, site_weights, some_rows, typical_rows
from fedspan.sums.row_blocks import blocks, n_columns

Matrix = NDArray[np.float64]


@step("pca.gram", reveals="sums", moments=True)
def local_gram(site: Site) -> dict[str, Any]:
    """Leaves the site: the upper triangle of ``X'X`` and the number of rows."""
    d = n_columns(site)
    gram = np.zeros((d, d))
    for X in blocks(site):
        gram += X.T @ X
    return {"gram": packed(gram), "n": len(site)}


@step("pca.mean_gram", reveals="sums", moments=True)
def local_phi(site: Site) -> dict[str, Any]:
    """Leaves the site: the upper triangle of its second moment ``Phi = X'X / q``, and its number of rows q."""
    return {"phi": local_gram(site)["gram"] / some_rows(site), "n": len(site)}


def covariance_pca(
    fed: Federation, *, rank: int | None = None, aggregator: Aggregator | None = None
) -> tuple[PrincipalAxes, dict[str, float]]:
    """Return the `rank` leading principal axes (default: all), and the weight of each site in them.

    Centre the rows first. An `aggregator` needs single replies, and combines the sites' second moments.
    """
    S, n, weights = total_scatter(fed, aggregator=aggregator)
    d = len(S)
    scatter, vectors = top_eigenpairs(S, d if rank is None else min(rank, d))
    return PrincipalAxes(vectors.T, np.maximum(scatter, 0.0), float(np.trace(S)), n), weights


def total_scatter(fed: Federation, *, aggregator: Aggregator | None = None) -> tuple[Matrix, int, dict[str, float]]:
    """Return the scatter matrix of all rows, their number, and the weight of each site."""
    if aggregator is None:
        total = fed.sum(local_gram)
        return unpacked(total["gram"]), total["n"], site_weights(total.sites)
    replies = means_of_rows("phi", fed, local_phi, local_gram, "gram")
    phi, counts = replies.stack("phi"), replies.stack("n")
    # An entry off the diagonal stands for two, one on it for one: so distances are those of whole matrices.
    factor = np.where(np.equal(*np.triu_indices(_side(phi.shape[1]))), np.sqrt(0.5), 1.0)
    combined = aggregator(phi * factor, believed(aggregator, counts))
    n = typical_rows(counts)
    return n * unpacked(combined.value / factor), n, site_weights(replies, combined.weights)


def packed(S: Matrix) -> Matrix:
    """Return the upper triangle of a symmetric matrix (d, d) as a vector: half the bytes."""
    return S[np.triu_indices(len(S))]


def unpacked(triangle: Matrix) -> Matrix:
    """Return the symmetric matrix with this upper triangle."""
    d = _side(len(triangle))
    S = np.zeros((d, d))
    S[np.triu_indices(d)] = triangle
    return S + np.triu(S, 1).T


def _side(entries: int) -> int:
    return int((np.sqrt(8 * entries + 1) - 1) / 2)
