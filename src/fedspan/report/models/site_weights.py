"""The picture of trust: how much an aggregator let each site count."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.markup import count
from fedspan.report.models.model_attributes import array_of, percent
from fedspan.report.models.picture import Names, Picture

MOST_SITES = 30


def site_weights(model: Any, names: Names = None) -> Picture | None:
    """Draw the weights of the sites (``site_weights_``, ``sites_trusted_``), those with the least first.

    Where all sites count alike there is nothing to see.
    """
    weights, sites = array_of(model, "site_weights_", 1), getattr(model, "sites_", ())
    if weights is None or len(weights) != len(sites) or not np.isfinite(weights).all() or np.ptp(weights) < 1e-9:
        return None
    least = np.argsort(weights, kind="stable")[:MOST_SITES]
    chart = row_bars(
        [sites[i] for i in least],
        [[float(weights[i])] for i in least],
        label="weight of each site",
        show=percent,
        colours=[0],
    )
    trusted = getattr(model, "sites_trusted_", sites)
    doubted = [site for site in sites if site not in set(trusted)]
    said = f"{count(len(trusted))} of {count(len(sites))} have at least half an equal share."
    said += f" The {len(least)} with the least are shown." if len(least) < len(sites) else ""
    said += f" Doubted: {', '.join(doubted[:12])}{' and more' if len(doubted) > 12 else ''}." if doubted else ""
    return Picture("Weight of each site", chart, said)
