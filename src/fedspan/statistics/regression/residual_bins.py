"""Residuals of a regression by sums: how many lie between edges, and their means along the linear predictor.

Pearson's residual of a row is its target minus its mean, over the deviation that the model gives it. Where the model is
right, residuals have mean 0 and deviation 1 along the whole linear predictor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from fedspan.errors import MessageError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Flags, Positive, Vector
from fedspan.statistics.describe.parts.suppression import hidden_cells, list_sums, shown
from fedspan.statistics.regression.parts.design_rows import (
    COUNTED,
    Design,
    DesignForm,
    DesignRows,
    design_rows,
    fewest_complete,
    with_site_effects,
)
from fedspan.statistics.regression.parts.families import FAMILIES
from fedspan.statistics.regression.parts.glm_sums import Classes, SquaredName, residuals, targets
from fedspan.sums.plausible_totals import whole

#: Edges of residuals, in deviations; those of the predictor, in deviations from its mean.
EDGES, _PLACES = np.arange(-4.0, 4.25, 0.5), np.arange(-2.0, 2.25, 0.5)
LEAST_SET = 5


@dataclass(frozen=True)
class ResidualBins:
    """Numbers of residuals below, between and above `EDGES`; by bin of the linear predictor its mean, and theirs.

    `predictor` and `mean` (k,), and `spread` (k,), the deviation of the mean; NaN where fewer than five rows are.
    """

    counts: Vector
    predictor: Vector
    mean: Vector
    spread: Vector


def _pearson(rows: DesignRows, family: str, classes: Any, coef: Vector, scale: float) -> tuple[Vector, Vector]:
    """Return linear predictors and Pearson's residuals of the rows that count."""
    eta = rows.Z @ coef + rows.offset
    root = np.sqrt(rows.weights / scale)
    if family == "gaussian":
        used, left = rows.weights > 0, residuals(rows, coef, 0.0)
    else:
        kind = FAMILIES[family]
        y, known = targets(rows, family, classes)
        mu = kind.mean(eta)
        spread = kind.variance(mu)
        used = known & (rows.weights > 0) & (spread > 0)
        left = (y - mu) / np.sqrt(np.where(spread > 0, spread, 1.0))
    return eta[used], (root * left)[used]


def _fewest_in_bins(site: Site, **payload: Any) -> int:
    """Return the fewest rows of a site in one bin of residuals or predictors, or in none, where any are."""
    found = local_residual_bins(site, **payload)
    counts = np.concatenate([found["counts"], found["rows"], [len(site) - found["rows"].sum()]])
    return int(counts[counts > 0].min(initial=fewest_complete(site, payload["drop"])))


@step("regression.predictor_sums", reveals="sums", weighted=True, counts=["n"], by_site=with_site_effects, **COUNTED)
def local_predictor_sums(site: Site, coef: Vector, **form: Unpack[DesignForm]) -> dict[str, Any]:
    """Leaves the site: n, and the sums of its rows' linear predictors and of their squares."""
    n, total, squares = 0, 0.0, 0.0
    for rows in design_rows(site, **form):
        eta = rows.Z @ coef + rows.offset
        n, total, squares = n + len(eta), total + float(eta.sum()), squares + float(eta @ eta)
    return {"n": n, "sum": total, "squares": squares}


@step(
    "regression.residual_bins",
    reveals="sums",
    weighted=True,
    fewest=_fewest_in_bins,
    fewest_in_sums=False,
    by_site=with_site_effects,
)
def local_residual_bins(
    site: Site,
    family: SquaredName,
    classes: Classes,
    coef: Vector,
    scale: Positive,
    edges: Vector,
    places: Vector,
    **form: Unpack[DesignForm],
) -> dict[str, Any]:
    """Leaves the site: the number of residuals between edges; by bin of the predictor rows, and sums of both."""
    counts = np.zeros(len(edges) + 1, dtype=np.int64)
    rows_of = np.zeros(len(places) + 1, dtype=np.int64)
    sums = np.zeros((2, len(places) + 1))
    for rows in design_rows(site, **form):
        eta, left = _pearson(rows, family, classes, coef, scale)
        counts += np.bincount(np.searchsorted(edges, left, side="right"), minlength=len(counts))
        at = np.searchsorted(places, eta, side="right")
        rows_of += np.bincount(at, minlength=len(rows_of))
        sums += [np.bincount(at, values, minlength=len(rows_of)) for values in (eta, left)]
    return {"counts": counts, "rows": rows_of, "sums": sums}


def residual_bins(
    fed: Federation,
    *,
    coef: Vector,
    scale: float = 1.0,
    family: str = "gaussian",
    classes: Any = (),
    intercept: bool = True,
    offset: int = -1,
    effects: tuple[str, ...] = (),
    drop: bool = False,
) -> ResidualBins | None:
    """Return the residuals of all sites' rows; ``None`` where sites refuse sums over few rows.

    Parameters
    ----------
    coef : array (q,)
        Of the intercept, the features without the offset, and each site of `effects`.
    scale : float, default=1.0
        The variance of the residuals, of the family "gaussian".
    family : {"gaussian", "binomial", "poisson"}, default="gaussian"
    classes : array, optional
        The two labels of the family "binomial".
    intercept : bool, default=True
    offset : int, default=-1
        The column that is added to the linear predictor; -1: none.
    effects : tuple of str, optional
        Sites that have a coefficient of their own.
    drop : bool, default=False
        Leave out rows with missing values.
    """
    slopes = len(coef) - intercept - len(effects)
    design = Design(slopes + (offset >= 0), intercept, offset, effects, drop, np.zeros(slopes)).plain()
    sent = {"coef": coef, **design.payload()}
    first = fed.sum(local_predictor_sums, **sent)
    whole(first, sum=(), squares=())
    n = max(1, int(first["n"]))
    with np.errstate(over="ignore", invalid="ignore"):
        middle = np.float64(first["sum"]) / n
        places = np.unique(middle + np.sqrt(np.maximum(first["squares"] / n - middle**2, 0.0)) * _PLACES)
    if not np.isfinite(places).all():
        raise MessageError("sums of linear predictors are too large to be true: leave out the site you do not trust")
    bins: dict[str, Any] = {"edges": EDGES, "places": places, "family": family, "classes": np.asarray(classes)}
    bins["scale"] = max(scale, 1e-300)
    try:
        total = fed.sum(local_residual_bins, **bins, **sent)
    except QuorumError:
        return None
    if total.sites != first.sites:
        return None
    k = len(places) + 1
    whole(total, counts=(len(EDGES) + 1,), rows=(k,), sums=(2, k))
    rows = np.maximum(total["rows"], 0)
    hidden = _few(rows)
    means = shown(total["sums"] / np.maximum(rows, 1), np.stack([hidden | (rows == 0)] * 2))
    spread = shown(1 / np.sqrt(np.maximum(rows, 1)), hidden | (rows == 0))
    counts = np.maximum(total["counts"], 0)
    return ResidualBins(shown(counts, _few(counts)), means[0], means[1], spread)


def _few(counts: Any) -> Flags:
    """Return which counts are hidden, where their total is known."""
    return hidden_cells(np.append(counts, counts.sum()), list_sums(len(counts)), least=LEAST_SET)[:-1]
