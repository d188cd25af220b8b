"""Exact PCA from the sites' Gram matrices: one round, whatever the split.

Each site sends the products of its columns about its own mean, and the coordinator merges them (`moment_axes`); or, of
rows that are centred already, their Gram matrix, of which only the sum is needed (`covariance_pca`). Up per site:
d (d + 1) / 2 numbers; down: nothing. Memory d^2 at each site and the coordinator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.vote_groups import warn_of_groups
from fedspan.arrays import Matrix
from fedspan.errors import MessageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Vector
from fedspan.linalg import top_eigenpairs
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.sums.moments import counted, counted_rows, means_of_rows, site_weights, some_rows, typical_rows
from fedspan.sums.row_blocks import n_columns, site_weight, weighted_blocks
from fedspan.sums.row_moments import RowMoments, packed, side, unpacked
from fedspan.wire import Message

#: A second moment may be below zero by this part of its trace.
_ROUNDING = 1e-9


@step("pca.gram", reveals="sums", moments=True, weighted=True)
def local_gram(site: Site) -> dict[str, Any]:
    """Leaves the site: the upper triangle of ``X'X``, the number of rows and the sum of their weights."""
    d = n_columns(site)
    gram = np.zeros((d, d))
    for X, weights in weighted_blocks(site):
        R = X if weights is None else np.sqrt(weights)[:, None] * X
        gram += R.T @ R
    return {"gram": packed(gram), "n": len(site), "weight": site_weight(site)}


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


def total_scatter(fed: Federation, *, aggregator: Aggregator | None = None) -> tuple[Matrix, float, dict[str, float]]:
    """Return the scatter matrix of all rows, their number, and the weight of each site."""
    if aggregator is None:
        total = fed.sum(local_gram)
        return unpacked(total["gram"]), counted_rows(total), site_weights(total.sites)
    replies = means_of_rows("phi", fed, local_phi, local_gram, "gram")
    if not fed.policy.groups:
        replies = fed.accept(replies, _checked)
    phi, counts = replies.stack("phi"), replies.stack("n")
    # An entry off the diagonal stands for two, one on it for one: so distances are those of whole matrices.
    factor = np.where(np.equal(*np.triu_indices(side(phi.shape[1]))), np.sqrt(0.5), 1.0)
    combined = aggregator(phi * factor, believed(aggregator, counts))
    warn_of_groups("the second moments", phi, tuple(replies))
    n = typical_rows(counts)
    return n * unpacked(combined.value / factor), n, site_weights(replies, combined.weights)


def _checked(reply: Message) -> Message:
    """Return a reply; refuse products that no rows have: they could pull small variances below zero."""
    phi = unpacked(reply["phi"])
    phi /= np.abs(phi).max(initial=np.finfo(np.float64).tiny)
    try:
        np.linalg.cholesky(phi + _ROUNDING * max(1.0, float(np.trace(phi))) * np.eye(len(phi)))
    except np.linalg.LinAlgError:
        raise MessageError("'phi' is not a second moment of rows: some combination has a negative square") from None
    return reply


def moment_axes(found: RowMoments, *, center: bool, scale: Vector | None, rank: int | None) -> PrincipalAxes:
    """Return the leading principal axes of rows with these moments, about their mean and over `scale` if wanted."""
    S, n = found.gram(), counted(found)
    if not center:
        S += n * np.outer(found.mean, found.mean)
    if scale is not None:
        S /= np.outer(scale, scale)
    values, vectors = top_eigenpairs(S, len(S) if rank is None else min(rank, len(S)))
    return PrincipalAxes(vectors.T, np.maximum(values, 0.0), float(np.trace(S)), n)
