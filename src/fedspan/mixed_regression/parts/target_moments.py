"""Mean and deviation of the targets: two calls, two numbers each; only sums are needed but with an aggregator."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.mixed_regression.parts.regression_rows import target
from fedspan.sums.plausible_totals import refuse_absurd


@step("mixed_regression.target_sum", reveals="sums")
def local_target_sum(site: Site) -> dict[str, Any]:
    """Leaves the site: how many of its targets are finite and how many are not, and the sum of those that are."""
    y = target(site, finite=False)
    finite = np.isfinite(y)
    return {"n": int(finite.sum()), "bad": int((~finite).sum()), "sum": float(y[finite].sum())}


@step("mixed_regression.target_spread", reveals="sums")
def local_target_spread(site: Site, centre: float) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the sum of squared distances of its targets from `centre`."""
    y = target(site) - centre
    return {"n": len(y), "sum": float(y.sum()), "squares": float(y @ y)}


def target_moments(fed: Federation, *, aggregator: Aggregator | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of all targets. Values that are not finite are refused, by site."""
    if aggregator is None:
        first = fed.sum(local_target_sum)
        if first["bad"]:
            replies = {} if fed.policy.secure_sum else fed.ask(local_target_sum)
            where = [f"site {name!r} ({r['bad']} values)" for name, r in replies.items() if r["bad"]]
            where = where or [f"some site ({first['bad']} values)"]
            more = f" and {len(where) - 5} more" if len(where) > 5 else ""
            raise InputError(f"y contains NaN or infinity: {', '.join(where[:5])}{more}; fill or drop them first")
        if not first["n"] > 0:
            raise InputError("the sites have no rows: there is nothing to learn from")
        centre = first["sum"] / first["n"]
        second = fed.sum(local_target_spread, centre=centre)
        shift = second["sum"] / max(second["n"], 1)
        refuse_absurd(centre, shift, second["squares"])
        return centre + shift, float(np.sqrt(max(second["squares"] / max(second["n"], 1) - shift**2, 0.0)))
    replies = fed.ask(local_target_sum)
    counts = np.maximum(replies.stack("n"), 1)
    centre = float(aggregator((replies.stack("sum") / counts)[:, None], believed(aggregator, counts)).value[0])
    replies = fed.ask(local_target_spread, centre=centre)
    counts = np.maximum(replies.stack("n"), 1)
    spread = aggregator((replies.stack("squares") / counts)[:, None], believed(aggregator, counts)).value[0]
    return centre, float(np.sqrt(max(float(spread), 0.0)))
