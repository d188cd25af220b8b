"""PCA by orthogonal iteration with oversampling: for tables too wide for a Gram matrix.

Per round and site, each way: d (k + p) numbers, with p extra columns. Only sums are needed. Converges like the ratio
of the eigenvalues k + p + 1 and k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh, qr

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix
from fedspan.linalg import with_fixed_signs
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.sums.moments import row_totals
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_blocks import blocks
from fedspan.sums.sparse_rows import sparse_rows


@step("pca.product", reveals="sums", moments=True)
def local_product(site: Site, V: Matrix) -> dict[str, Any]:
    """Leaves the site: ``X'X V`` (d, k + p), the trace of ``X'X`` and the number of rows."""
    sparse = sparse_rows(site)
    if sparse is not None:
        product, trace = sparse.transposed_times(sparse.times(V)), float(sparse.squares(np.zeros(len(V))).sum())
        return {"product": product, "trace": trace, "n": len(site)}
    product, trace = np.zeros(V.shape), 0.0
    for X in blocks(site):
        product += X.T @ (X @ V)
        trace += float(np.vdot(X, X))
    return {"product": product, "trace": trace, "n": len(site)}


def subspace_iteration(
    fed: Federation,
    *,
    rank: int,
    n_columns: int,
    oversampling: int = 8,
    max_rounds: int = 200,
    tol: float = 1e-8,
    aggregator: Aggregator | None = None,
    memory: Matrix | None = None,
) -> tuple[PrincipalAxes, dict[str, float]]:
    """Return the `rank` leading principal axes, and the weight of each site in the last round.

    Centre the rows first. An `aggregator` needs single replies, and combines the sites' mean products. Rows (m, d) of
    `memory` count beside those of the sites; then all ``rank + oversampling`` axes are returned, the last ones roughly.

    Stops when the residual of the axes, ``||S V - V theta|| / theta_1``, is at most `tol`. The sine of the largest
    angle to the true axes is then at most `tol` times ``theta_1`` over the eigengap.
    """
    columns = min(rank + oversampling, n_columns)
    V = qr(fed.rng.standard_normal((n_columns, columns)), mode="economic")[0]
    for _ in fed.rounds(max_rounds):
        total = row_totals(("product", "trace"), fed, local_product, aggregator, V=V)
        W = total.sums["product"]
        if aggregator is None:
            refuse_absurd(W, total.sums["trace"])
        W = W if memory is None else W + memory.T @ (memory @ V)
        inner = V.T @ W
        theta, Q = eigh((inner + inner.T) / 2)  # Rayleigh-Ritz: the best axes within the span of V
        spectrum, ritz = theta[::-1], (V, Q[:, ::-1])
        theta, Q = spectrum[:rank], ritz[1][:, :rank]
        axes = V @ Q
        # In units of a power of two near theta_1, which rounds nothing: squares of small numbers would be zero.
        unit = np.ldexp(1.0, int(np.frexp(max(theta[0], np.finfo(float).tiny))[1]))
        residual = float(np.linalg.norm(W @ Q / unit - axes * (theta / unit)) / max(theta[0] / unit, 0.5))
        fed.log(residual=residual)
        if residual <= tol:
            fed.stop(f"converged: residual {residual:.1e} is at most {tol:g}", converged=True)
        V = qr(W, mode="economic")[0]
    trace = float(total.sums["trace"])
    if memory is not None:
        axes, theta = ritz[0] @ ritz[1], spectrum
    return PrincipalAxes(with_fixed_signs(axes).T, np.maximum(theta, 0.0), trace, total.n), total.weights
