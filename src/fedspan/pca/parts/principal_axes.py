"""Principal axes: the result of PCA protocols, the variances along a basis, and the variance outside of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, Vector, Whole
from fedspan.linalg import top_eigenpairs, with_fixed_signs
from fedspan.sums.moments import row_totals
from fedspan.sums.row_blocks import blocks, site_weight, weighted_blocks

#: The number of directions that a site sends, as a parameter of a step.
Rank = Annotated[int, Whole(1, 2**20)]


@dataclass(frozen=True)
class PrincipalAxes:
    """Principal axes of the scatter matrix ``S = sum_i x_i x_i'`` of all rows.

    Attributes
    ----------
    components : array (k, d)
        Orthonormal rows, largest scatter first.
    scatter : array (k,)
        The eigenvalues of S that belong to them.
    total : float
        The trace of S.
    n : int or float
        The number of rows, or the sum of their weights.
    """

    components: Matrix
    scatter: Vector
    total: float
    n: float


@step("pca.variances", reveals="sums", moments=True)
def local_variances(site: Site, U: Matrix) -> dict[str, Any]:
    """Leaves the site: ``U' X'X U`` (r, r), the trace of ``X'X``, its number of rows."""
    inner, trace = np.zeros((U.shape[1], U.shape[1])), 0.0
    for X in blocks(site):
        T = X @ U
        inner += T.T @ T
        trace += float(np.vdot(X, X))
    return {"inner": inner, "trace": trace, "n": len(site)}


def axis_variances(fed: Federation, *, U: Matrix, aggregator: Aggregator | None = None) -> PrincipalAxes:
    """Return the principal axes within the span of `U` (d, r, orthonormal): one round, r^2 numbers up per site."""
    total = row_totals(("inner", "trace"), fed, local_variances, aggregator, U=U)
    inner, trace = total.sums["inner"], float(total.sums["trace"])
    scatter, Q = top_eigenpairs((inner + inner.T) / 2, U.shape[1])
    scatter = np.maximum(scatter, 0.0)
    return PrincipalAxes(with_fixed_signs(U @ Q).T, scatter, max(trace, float(scatter.sum())), total.n)


@step("pca.residual", reveals="sums", moments=True, weighted=True)
def local_residual(site: Site, components: Matrix) -> dict[str, Any]:
    """Leaves the site: the sum of the squared distances of its rows from the span of `components` (k, d)."""
    total = 0.0
    for X, weights in weighted_blocks(site):
        R = X - (X @ components.T) @ components
        total += float(np.vdot(R, R) if weights is None else weights @ np.vecdot(R, R))
    return {"residual": total, "n": len(site), "weight": site_weight(site)}


def residual(fed: Federation, *, components: Matrix, aggregator: Aggregator | None = None) -> tuple[float, float]:
    """Return the sum of the squared distances of all rows from the span of `components`, and the number of rows.

    One round, one number up per site. It comes from the distances themselves: a difference of two large scatters has
    no digits left where it is small.
    """
    total = row_totals(("residual",), fed, local_residual, aggregator, components=components)
    return max(0.0, float(total.sums["residual"])), total.n
