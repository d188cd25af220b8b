"""The scales of features and targets over all sites.

Features: a linear map after which their rows have no mean and unit covariance. Means and deviations come first
(`moments`), then the sum of the standardised rows' Gram matrices: d (d + 1) / 2 numbers up per site, once. Targets:
mean and deviation, two calls of two numbers each. Only sums are needed; with an aggregator, single replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.checks import one_of
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Vector
from fedspan.linalg import whitening_map
from fedspan.mixed_regression.parts.regression_rows import target
from fedspan.pca.covariance import total_scatter
from fedspan.sums.moments import moments
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_transforms import standardize

SCALINGS = ("whiten", "standardize", "none")
_FLOOR = 0.05  # of the mean: an aggregated covariance is an estimate and must not blow up any direction
_EPS = np.finfo(np.float64).eps


@dataclass(frozen=True)
class FeatureScaling:
    """The map ``(x - mean) matrix`` of rows; `mean` is (d,), `matrix` (d, r) or, if diagonal, (d,)."""

    mean: Vector
    matrix: Any


def feature_scaling(
    fed: Federation,
    *,
    scaling: str = "whiten",
    center: bool = True,
    names: tuple[str, ...] | None = None,
    aggregator: Aggregator | None = None,
) -> FeatureScaling:
    """Return the map; `scaling` "standardize" keeps correlations, "none" also the deviations.

    "whiten" leaves out directions without variance. With an aggregator it keeps all, and stretches none by much.
    """
    one_of("scaling", scaling, SCALINGS)
    found = moments(fed, names, aggregator)
    refuse_absurd(found.n)
    d = len(found.mean)
    mean = found.mean if center else np.zeros(d)
    if scaling == "none":
        return FeatureScaling(mean, np.ones(d))
    second = found.variance + (0.0 if center else found.mean**2)
    rounding = found.n * _EPS * (found.variance + found.n * _EPS * found.mean**2)
    scale = np.where(second <= rounding, 1.0, np.sqrt(second))
    if scaling == "standardize":
        return FeatureScaling(mean, 1.0 / scale)
    S, n, _ = total_scatter(fed.apply(standardize, mean=mean, scale=scale, double=True), aggregator=aggregator)
    matrix = whitening_map(S / n, floor=0.0 if aggregator is None else _FLOOR)
    return FeatureScaling(mean, matrix / scale[:, None] if matrix.size else 1.0 / scale)


@step("mixed_regression.target_sum", reveals="sums")
def local_target_sum(site: Site) -> dict[str, Any]:
    """Leaves the site: the numbers of its targets that are finite and that are not, and the sum of the finite ones."""
    y = target(site, finite=False)
    finite = np.isfinite(y)
    return {"n": int(finite.sum()), "bad": int((~finite).sum()), "sum": float(y[finite].sum())}


@step("mixed_regression.target_spread", reveals="sums")
def local_target_spread(site: Site, centre: float) -> dict[str, Any]:
    """Leaves the site: n, and the sums of its targets' differences from `centre` and of their squares."""
    y = target(site) - centre
    return {"n": len(y), "sum": float(y.sum()), "squares": float(y @ y)}


def target_moments(fed: Federation, *, aggregator: Aggregator | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of all targets, or refuse NaN and infinity, by site."""
    if aggregator is not None:
        centre = _typical(fed.ask(local_target_sum), "sum", aggregator)
        spread = _typical(fed.ask(local_target_spread, centre=centre), "squares", aggregator)
        return centre, float(np.sqrt(max(spread, 0.0)))
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
    n = max(second["n"], 1)
    shift = second["sum"] / n
    refuse_absurd(centre, shift, second["squares"])
    return centre + shift, float(np.sqrt(max(second["squares"] / n - shift**2, 0.0)))


def _typical(replies: Replies, key: str, aggregator: Aggregator) -> float:
    """Return the aggregate of the sites' sums per row."""
    counts = np.maximum(replies.stack("n"), 1)
    return float(aggregator((replies.stack(key) / counts)[:, None], believed(aggregator, counts)).value[0])
