"""Pictures of a correction of batches: how far the rows of each batch were moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.markup import MOST_SITES, number
from fedspan.report.models.picture import Names, Picture, more_sites, picture


@picture(effects_=4, cluster_sizes_=1)
def effects_by_batch(model: Any, names: Names, effects: Matrix, sizes: Matrix) -> Picture | None:
    """Draw the length of the effects of each batch after the last round, on average over the clusters' rows."""
    batches = getattr(model, "batches_", None)
    if batches is None or len(batches) != effects.shape[1] or effects.shape[2] != len(sizes):
        return None
    share = sizes / max(float(sizes.sum()), 1e-300)
    lengths = np.sqrt(np.einsum("k,bkd->b", share, effects[-1] ** 2))
    shown = [str(name) for name in batches[:MOST_SITES]]
    bars = row_bars(shown, [[float(length)] for length in lengths[:MOST_SITES]], label="effects", show=number)
    remark = f"Root mean square over the clusters, in units of the rows. {more_sites(tuple(batches))}".strip()
    return Picture("Effects of batches", bars, remark)
