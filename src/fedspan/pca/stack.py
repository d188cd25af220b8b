"""One-shot PCA from the sites' own leading axes, each weighted by its scatter.

Up per site: d k numbers, once. Single replies are needed. Exact where every site's rows have rank k or less, otherwise
an approximation. The scatter that a site leaves out is lost, so that the total is underestimated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr, svd

from fedspan.federation import Federation, Site, step
from fedspan.linalg import with_fixed_signs
from fedspan.pca.parts.principal_axes import PrincipalAxes, Rank
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_blocks import blocks, n_columns


@step("pca.axes", reveals="sums")
def local_axes(site: Site, rank: Rank) -> dict[str, Any]:
    """Leaves the site: its `rank` leading axes, or all, times their singular values; trace and number of rows."""
    d = n_columns(site)
    R, trace = np.zeros((0, d)), 0.0
    for X in blocks(site):
        # The triangular factor of the rows so far has their Gram matrix: memory stays at d^2 and one block.
        R = qr(np.vstack([R, X]), mode="r", check_finite=False)[0][:d]
        trace += float(np.vdot(X, X))
    _, sizes, axes = svd(R, full_matrices=False)
    weighted = np.zeros((min(rank, d), d))  # a site with fewer rows than axes sends zeros for the rest
    k = min(rank, len(sizes))
    weighted[:k] = sizes[:k, None] * axes[:k]
    return {"axes": weighted, "trace": trace, "n": len(site)}


def stack_pca(fed: Federation, *, rank: int) -> PrincipalAxes:
    """Return the `rank` leading principal axes of the stacked local axes. Centre the rows first."""
    replies = fed.ask(local_axes, rank=rank)
    stacked = replies.stack("axes")
    refuse_absurd(stacked, replies.stack("trace"))
    _, sizes, axes = svd(stacked.reshape(-1, stacked.shape[2]), full_matrices=False)
    total, n = float(replies.stack("trace").sum()), int(replies.stack("n").sum())
    return PrincipalAxes(with_fixed_signs(axes[:rank].T).T, sizes[:rank] ** 2, total, n)
