"""The picture of an adjustment for sites: how far each site was from all."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.markup import MOST_SITES, number
from fedspan.report.models.picture import Names, Picture, more_sites, picture


@picture(gamma_=2, delta_=2)
def site_locations(model: Any, names: Names, gamma: Matrix, delta: Matrix) -> Picture | None:
    """Draw the root mean squared location of each site, in pooled deviations."""
    sites = [str(site) for site in getattr(model, "sites_", ())]
    if len(sites) != len(gamma):
        return None
    values = np.sqrt((gamma**2).mean(axis=1))[:MOST_SITES].tolist()
    chart = row_bars(sites[:MOST_SITES], [[value] for value in values], label="location of each site", show=_shown)
    low, high = np.sqrt(delta.min()), np.sqrt(delta.max())
    remark = f"Root mean square over {gamma.shape[1]} features, in pooled deviations; the sites' own deviations are "
    remark += f"{number(float(low), 3)} to {number(float(high), 3)} times the pooled ones. {more_sites(sites)}"
    return Picture("How far each site was from all", chart, remark.strip())


def _shown(value: float) -> str:
    return number(value, 3)
