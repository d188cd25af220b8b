"""Principal axes within a subspace that was found without its variances: one more round, r^2 numbers up per site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.linalg import top_eigenpairs, with_fixed_signs
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.sums.aggregated_sums import aggregated
from fedspan.sums.row_blocks import blocks


@step("pca.variances", reveals="sums")
def local_variances(site: Site, U: NDArray[np.float64]) -> dict[str, Any]:
    """Leaves the site: ``U' X'X U`` (r, r), the trace of ``X'X``, its number of rows."""
    inner, trace = np.zeros((U.shape[1], U.shape[1])), 0.0
    for X in blocks(site):
        T = X @ U
        inner += T.T @ T
        trace += float(np.vdot(X, X))
    return {"inner": inner, "trace": trace, "n": len(site)}


def axis_variances(fed: Federation, *, U: NDArray[np.float64], aggregator: Aggregator | None = None) -> PrincipalAxes:
    """Return the principal axes that lie in the span of `U` (d, r, orthonormal), from sums or by `aggregator`."""
    if aggregator is None:
        total = fed.sum(local_variances, U=U)
        return _axes(U, total["inner"], total["trace"], total["n"])
    replies = fed.ask(local_variances, U=U)
    (inner, trace), n = aggregated(replies, ("inner", "trace"), aggregator)
    return _axes(U, n * inner.value, n * float(trace.value), n)


def _axes(U: NDArray[np.float64], inner: NDArray[np.float64], trace: float, n: int) -> PrincipalAxes:
    scatter, Q = top_eigenpairs((inner + inner.T) / 2, U.shape[1])
    scatter = np.maximum(scatter, 0.0)
    return PrincipalAxes(with_fixed_signs(U @ Q).T, scatter, max(trace, float(scatter.sum())), n)
