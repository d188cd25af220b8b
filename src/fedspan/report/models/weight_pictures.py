"""The picture of the weights that an aggregator gave the sites."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.markup import MOST_SITES, count, few, percent
from fedspan.report.models.picture import Names, Picture, picture

MOST_NAMES = 12


@picture(site_weights_=1)
def site_weights(model: Any, names: Names, weights: Matrix) -> Picture | None:
    """Draw the weights of the sites (``sites_trusted_``), the least first, unless all are equal."""
    sites = getattr(model, "sites_", ())
    if len(weights) != len(sites) or not np.isfinite(weights).all() or np.ptp(weights) < 1e-9:
        return None
    least = np.argsort(weights, kind="stable")[:MOST_SITES]
    shown = [[float(weights[i])] for i in least]
    chart = row_bars([sites[i] for i in least], shown, label="weight of each site", show=percent)
    trusted = getattr(model, "sites_trusted_", sites)
    doubted = [site for site in sites if site not in set(trusted)]
    remark = f"{count(len(trusted))} of {count(len(sites))} have at least half an equal share."
    remark += f" The {len(least)} with the least are shown." if len(least) < len(sites) else ""
    remark += f" Doubted: {few(doubted, MOST_NAMES)}." if doubted else ""
    return Picture("Weight of each site", chart, remark)
