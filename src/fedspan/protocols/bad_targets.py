"""Targets that cannot be learned from are refused before anything is learned: one round of sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step


@step
def local_bad_targets(site: Site) -> dict[str, Any]:
    """Leaves the site: how many of its targets are not finite, and whether it has none at all."""
    if site.y is None or site.y.dtype.kind not in "biuf":
        return {"bad": 0, "without": 1}
    return {"bad": int(np.sum(~np.isfinite(np.asarray(site.y, dtype=np.float64)))), "without": 0}


def refuse_bad_targets(fed: Federation) -> None:
    """Refuse targets that are missing or not finite."""
    total = fed.sum(local_bad_targets)
    if total["without"]:
        raise InputError(
            f"{total['without']} of {len(total.sites)} sites have no targets: y must hold a number for each row"
        )
    if total["bad"]:
        raise InputError(f"y contains NaN or infinity: {total['bad']} values at the sites; drop these rows first")
