"""Linear regression by sums, as accurate as a QR decomposition of the pooled rows.

Rounds: means; products of the columns about them, whose factor gives every site the same well-conditioned columns; then
products and residuals in those. Up per site and round: at most q (q + 1) + q + 5 numbers for q columns.

With a random intercept of each site the sites' own sums are needed: how many rows, and the sums of columns and
residuals. They travel in the rows of one table, of which each site fills its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, Total, step
from fedspan.federation.site.parameters import Labels, Matrix, Vector
from fedspan.statistics.regression.parts.design_rows import (
    COUNTED,
    NO_COLUMN,
    Design,
    DesignForm,
    column_sums,
    design_rows,
)
from fedspan.statistics.regression.parts.glm_sums import local_products, local_squared_scores, residuals
from fedspan.statistics.regression.parts.newton import inverse
from fedspan.statistics.regression.parts.random_intercept import SiteSums, random_intercept
from fedspan.statistics.regression.parts.regression_fit import RegressionFit, sandwich
from fedspan.sums.plausible_totals import whole


@step("regression.site_products", reveals="sums", weighted=True, by_site=True, **COUNTED)
def local_site_products(
    site: Site, names: Labels, coef: Vector, level: float, **form: Unpack[DesignForm]
) -> dict[str, Any]:
    """Leaves the site: what ``regression.products`` does, and in its own row of a table of all `names` its sums."""
    found = np.zeros((len(names), len(form["factor"]) + 2))
    own = names == site.name
    for rows in design_rows(site, **form):
        w = rows.weights
        r = residuals(rows, coef, level)
        found[own] += np.concatenate([[w.sum()], w @ rows.Z, [w @ r]])
    return {**local_products(site, coef, level, **form), "by_site": found}


@dataclass(frozen=True)
class LinearFit(RegressionFit):
    """A linear regression: total and residual sums of squares, and the effects of the sites (s,), if they are random.

    `between` is the variance of the random effects.
    """

    total_squares: float = 0.0
    squares: float = 0.0
    effects: Vector | None = None
    between: float = 0.0


def least_squares(
    fed: Federation,
    *,
    intercept: bool = True,
    offset: int = -1,
    effect: str | None = None,
    ridge: float = 0.0,
    cov_type: str = "nonrobust",
    drop: bool = False,
    names: tuple[str, ...] | None = None,
) -> LinearFit:
    """Return the linear regression of the targets of all sites.

    Parameters
    ----------
    intercept : bool, default=True
    offset : int, default=-1
        The column of X that is subtracted from the target; -1 for none.
    effect : {None, "fixed", "random"}, default=None
        Whether each site has an intercept of its own: as a column, or drawn from a normal distribution.
    ridge : float, default=0.0
        The sum of squares is increased by this times the squared coefficients of features.
    cov_type : {"nonrobust", "HC0", "HC1", "HC2", "HC3", "cluster"}, default="nonrobust"
    drop : bool, default=False
        Leave out rows with missing values.
    names : tuple of str, optional
        Names of the columns, for errors.
    """
    first = column_sums(names, fed, drop=drop)
    rows = first.counted()
    design = design_of(first.mean, fed.sites, intercept, offset, effect, drop)
    level = first.level if intercept else 0.0
    plain = design.plain()
    raw = fed.sum(local_products, coef=np.zeros(plain.width), level=level, **plain.payload())
    rows.compare(raw)
    penalty = ridge * penalised(design)
    G = raw["gram"] + np.diag(penalty)
    design = design.factored(G, raw["n"])
    while True:
        P = inner_penalty(design, penalty)
        b = np.zeros(len(design.factor))
        found = fed.sum(local_products, coef=b, level=level, **design.payload())
        lost = np.diag(found["gram"] + P) < NO_COLUMN
        if not lost.any():
            break
        design = design.without(lost, G)
    H = found["gram"] + P
    bread = inverse(H)
    b = bread @ found["moment"]
    # A second step on residuals: the first one may have lost digits to large targets.
    random = effect == "random"
    more = {"names": np.array(fed.sites, dtype=str)} if random else {}
    last = fed.sum(local_site_products if random else local_products, coef=b, level=level, **more, **design.payload())
    rows.compare(last)
    total = float(raw["squares"] - (raw["sum"] ** 2 / raw["weight"] if intercept else 0.0))
    if random:
        return _mixed(design, level, b, last, total)
    b = b + bread @ (last["moment"] - P @ b)
    squares, weight = float(last["squares"]), float(last["weight"])
    n = int(last["n"])
    df = n - int(design.kept.sum())
    scale = squares / df if df > 0 else math.nan
    # The likelihood at its maximum, as that of weighted least squares.
    loglik = -n / 2 * (math.log(2 * math.pi * max(squares, 1e-300) / n) + 1) + float(last["log_weight"]) / 2
    if cov_type == "nonrobust":
        cov = scale * (bread @ found["gram"] @ bread if ridge else bread)
    else:
        meat = "HC0" if cov_type == "HC1" else cov_type
        sent = {"family": "gaussian", "meat": meat, "classes": np.zeros(0), "coef": b, "level": level, "bread": bread}
        scores = fed.sum(local_squared_scores, **sent, **design.payload())
        cov = sandwich(bread, scores["meat"], cov_type, n, len(b), int(scores["clusters"]))
    columns = design.to_columns(b)
    columns[:1] += level * intercept
    return LinearFit(design, columns, design.covariance(cov), n, weight, loglik, scale, True, 1, None, total, squares)


def design_of(
    mean: Vector, sites: tuple[str, ...], intercept: bool, offset: int, effect: str | None, drop: bool
) -> Design:
    """Return the design about the means of the columns, with a column for each site but the first if it is wanted."""
    own = sites[1:] if intercept else sites
    centre = np.delete(mean, offset) if offset >= 0 else mean
    design = Design(len(mean), intercept, offset, own if effect == "fixed" else (), drop)
    return replace(design, centre=centre if intercept else np.zeros_like(centre))


def penalised(design: Design) -> Vector:
    """Return 1 for the columns that a ridge shrinks, the features, and 0 for the others."""
    found = np.zeros(design.width)
    found[design.intercept : design.intercept + design.slopes] = 1.0
    return found


def inner_penalty(design: Design, penalty: Vector) -> Matrix:
    """Return a penalty on the columns' squared coefficients as one on those of Z."""
    k = len(design.factor)
    if not penalty.any():
        return np.zeros((k, k))
    M = design.unmapped()
    return np.asarray(M.T @ (penalty[:, None] * M))


def _mixed(design: Design, level: float, b: Vector, last: Total, total: float) -> LinearFit:
    """Return the fit with random effects of the sites."""
    by_site = whole(last, by_site=(last["by_site"].shape[0], len(b) + 2))["by_site"]
    weights, columns, residuals = by_site[:, 0], by_site[:, 1:-1], by_site[:, -1]
    if not (weights >= 0).all():
        raise MessageError("a site reports a weight below 0: leave out the site that you do not trust")
    if int((weights > 0).sum()) < 2:
        raise InputError("site_effect='random' needs rows at two sites or more: the variance between sites is unknown")
    sums = SiteSums(last["gram"], last["moment"], float(last["squares"]), int(last["n"]), weights, columns, residuals)
    found = random_intercept(sums)
    columns = design.to_columns(b + found.coef)
    columns[:1] += level * design.intercept
    cov = design.covariance(found.covariance)
    # The restricted likelihood is that of the columns as they are.
    loglik = found.loglik - float(np.log(np.abs(np.diag(design.factor))).sum())
    base = (design, columns, cov, sums.n, float(last["weight"]), loglik, found.within, True, found.rounds, None)
    return LinearFit(*base, total, found.squares, found.effects, found.between)
