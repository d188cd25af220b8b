"""Principal axes within a subspace that was found without its variances: one more round, r^2 numbers up per site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import top_eigenpairs, with_fixed_signs
from fedspan.protocols.blocks import blocks
from fedspan.protocols.principal_axes import PrincipalAxes
from fedspan.protocols.resilient_moments import typical_rows


@step
def local_variances(site: Site, U: NDArray[np.float64]) -> dict[str, Any]:
    """Leaves the site: ``U' Phi U`` (r, r) of its second moment Phi, the trace of Phi, its number of rows."""
    inner, trace = np.zeros((U.shape[1], U.shape[1])), 0.0
    for X in blocks(site):
        T = X @ U
        inner += T.T @ T
        trace += float(np.vdot(X, X))
    if not len(site):
        raise InputError("this site has no rows to take a variance of")
    return {"inner": inner / len(site), "trace": trace / len(site), "n": len(site)}


def axis_variances(fed: Federation, *, U: NDArray[np.float64], aggregator: Aggregator) -> PrincipalAxes:
    """Return the principal axes that lie in the span of `U` (d, r, orthonormal), with variances by `aggregator`."""
    replies = fed.ask(local_variances, U=U)
    inner = aggregator(replies.stack("inner")).value
    variances, Q = top_eigenpairs((inner + inner.T) / 2, U.shape[1])
    total = max(float(aggregator(replies.stack("trace")).value), float(np.maximum(variances, 0.0).sum()))
    n = typical_rows(replies.stack("n"))
    return PrincipalAxes(with_fixed_signs(U @ Q).T, n * np.maximum(variances, 0.0), n * total, n)
