"""How much of the rows lies outside a subspace: one round, one number up per site. Only sums are needed.

With an aggregator single replies are, and it combines the sites' means. Taken from the residuals themselves, because
the difference of two large scatters has no digits left where it is small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.federation import Federation, Site, step
from fedspan.sums.aggregated_sums import aggregated
from fedspan.sums.row_blocks import blocks


@step("pca.residual", reveals="sums")
def local_residual(site: Site, components: NDArray[np.float64]) -> dict[str, Any]:
    """Leaves the site: the sum of the squared distances of its rows from the span of `components` (k, d)."""
    total = 0.0
    for X in blocks(site):
        R = X - (X @ components.T) @ components
        total += float(np.vdot(R, R))
    return {"residual": total, "n": len(site)}


def residual(
    fed: Federation, *, components: NDArray[np.float64], aggregator: Aggregator | None = None
) -> tuple[float, int]:
    """Return the sum of the squared distances of all rows from the span of `components`, and the number of rows."""
    if aggregator is not None:
        (mean,), n = aggregated(fed.ask(local_residual, components=components), ("residual",), aggregator)
        return n * max(0.0, float(mean.value)), n
    total = fed.sum(local_residual, components=components)
    return float(total["residual"]), int(total["n"])
