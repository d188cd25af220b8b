"""Targets that cannot be learned from are refused before anything is learned: one round of sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.few_shot.parts.task_rows import EXTREME, is_extreme


@step("few_shot.bad_targets", reveals="sums")
def local_bad_targets(site: Site) -> dict[str, Any]:
    """Leaves the site: how many of its targets are not finite, and whether it has none or only extreme ones."""
    if site.y is None or site.y.dtype.kind not in "biuf":
        return {"bad": 0, "without": 1, "extreme": 0}
    y = np.asarray(site.y, dtype=np.float64)
    return {"bad": int(np.sum(~np.isfinite(y))), "without": 0, "extreme": int(is_extreme(y[np.isfinite(y)]))}


def refuse_bad_targets(fed: Federation) -> None:
    """Refuse targets that are missing or not finite."""
    total = fed.sum(local_bad_targets)
    if total["without"]:
        raise InputError(
            f"{total['without']} of {len(total.sites)} sites have no targets: y must hold a number for each row"
        )
    if total["bad"]:
        raise InputError(f"y contains NaN or infinity: {total['bad']} values at the sites; drop these rows first")
    if total["extreme"]:
        raise InputError(
            f"{total['extreme']} of {len(total.sites)} sites have targets beyond {EXTREME:g}, or all of them below "
            f"{1 / EXTREME:g}: rescale y"
        )
