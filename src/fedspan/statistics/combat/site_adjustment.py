"""ComBat by sums: how the features of each site differ in location and scale from those of all.

Feature j of row i at site s is ``alpha_j + x_i' b_j + gamma_sj + delta_sj e_ij``; covariates x are kept. Rounds:
numbers of rows and sums, by site; products of covariates with features about each site's own means; sums of squared
residuals, by site. What is by site travels in the rows of one table, of which each site fills its own. An adjustment
for sites is about single sites. Up per site: s (d + 1) + c (c + p) + s p numbers for s sites, p features, c covariates
and d columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import Indices, Labels, Matrix, Vector
from fedspan.statistics.combat.empirical_bayes import SiteEffect, non_parametric, parametric, single_features
from fedspan.statistics.regression.parts.design_rows import Column, triangular_factor
from fedspan.sums.plausible_totals import CountedRows, whole
from fedspan.sums.row_blocks import blocks, n_columns

#: A pooled deviation below this share of the mean is rounding.
_ROUNDING = 1e-13


def _rows(site: Site, controls: int) -> Iterator[Matrix]:
    """Yield the rows to fit on: all, or those whose value in the column `controls` is not 0."""
    if controls >= n_columns(site):
        raise InputError(f"site {site.name!r} has no column {controls} of controls")
    for X in blocks(site):
        yield X if controls < 0 else X[X[:, controls] != 0]


def fitted_rows(site: Site, controls: int, **others: Any) -> int:
    """Return the number of rows to fit on, or of those left out where they are fewer: sums over all rows less these."""
    fitted = sum(len(X) for X in _rows(site, controls))
    return min(fitted, len(site) - fitted) if fitted < len(site) else fitted


@step("combat.site_sums", reveals="sums", counts=["n"], fewest=fitted_rows, by_site=True)
def local_site_sums(site: Site, names: Labels, controls: Column) -> dict[str, Any]:
    """Leaves the site: in its own row of a table of all `names`, its number of rows and the sum of each column."""
    table, own = np.zeros((len(names), n_columns(site) + 1)), names == site.name
    for X in _rows(site, controls):
        table[own] += np.concatenate([[len(X)], X.sum(axis=0)])
    return {"n": int(table[:, 0].sum()), "by_site": table}


@step("combat.products", reveals="sums", fewest=fitted_rows)
def local_covariate_products(site: Site, features: Indices, covariates: Indices, controls: Column) -> dict[str, Any]:
    """Leaves the site: products of covariates with covariates and features, about its own means."""
    gram, cross = np.zeros((len(covariates), len(covariates))), np.zeros((len(covariates), len(features)))
    centre = _own_mean(site, controls)
    for X in _rows(site, controls):
        D = X - centre
        gram += D[:, covariates].T @ D[:, covariates]
        cross += D[:, covariates].T @ D[:, features]
    return {"gram": gram, "cross": cross}


@step("combat.squares", reveals="sums", fewest=fitted_rows, by_site=True)
def local_residual_squares(
    site: Site, names: Labels, features: Indices, covariates: Indices, controls: Column, slopes: Matrix
) -> dict[str, Any]:
    """Leaves the site: in its own row of a table of all `names`, the squares of each feature about its own mean.

    Without what the covariates explain by their `slopes`.
    """
    table, own = np.zeros((len(names), len(features))), names == site.name
    centre = _own_mean(site, controls)
    for X in _rows(site, controls):
        D = X - centre
        table[own] += ((D[:, features] - D[:, covariates] @ slopes) ** 2).sum(axis=0)
    return {"by_site": table}


def _own_mean(site: Site, controls: int) -> Vector:
    """Return the mean of each column over the rows to fit on."""

    def make() -> Vector:
        total, n = np.zeros(n_columns(site)), 0
        for X in _rows(site, controls):
            total, n = total + X.sum(axis=0), n + len(X)
        return np.asarray(total / max(n, 1))

    return site.cached(f"combat mean {controls}", make)


@transform("combat.adjusted", view=True, by_site=True)
def adjusted_site(
    site: Site,
    names: Labels,
    features: Indices,
    covariates: Indices,
    mean: Vector,
    slopes: Matrix,
    shift: Matrix,
    spread: Matrix,
) -> Site:
    """Return a site whose rows are adjusted by its own location and scale."""
    own = np.flatnonzero(names == site.name)
    if len(own) != 1:
        raise InputError(f"site {site.name!r} is not among the sites that this adjustment was fitted at")
    k = int(own[0])
    form: dict[str, Any] = {"features": features, "covariates": covariates, "mean": mean, "slopes": slopes}
    return site.through(partial(adjusted, **form, shift=shift[k], spread=spread[k]))


def adjusted(
    X: Array,
    features: NDArray[np.int64],
    covariates: NDArray[np.int64],
    mean: Vector,
    slopes: Matrix,
    shift: Matrix,
    spread: Matrix,
) -> Array:
    """Return rows with adjusted features; `shift` and `spread` are (p,), or (n, p) by row. float32 stays float32."""
    found = np.array(X, dtype=np.float64)
    expected = mean + found[:, covariates] @ slopes
    found[:, features] = expected + (found[:, features] - expected - shift) / spread
    return found.astype(X.dtype if X.dtype == np.float32 else np.float64)


@dataclass(frozen=True)
class SiteAdjustment:
    """Locations and scales of the sites (s, p), raw (hat) and in the end; means, slopes and deviations of all rows."""

    rows: NDArray[np.int64]
    mean: Vector
    slopes: Matrix
    deviation: Vector
    gamma_hat: Matrix
    delta_hat: Matrix
    gamma: Matrix
    delta: Matrix


def site_adjustment(
    fed: Federation,
    *,
    features: NDArray[np.int64],
    covariates: NDArray[np.int64] | None = None,
    controls: int = -1,
    shrink: bool = True,
    normal_prior: bool = True,
    mean_only: bool = False,
    tol: float = 1e-4,
) -> SiteAdjustment:
    """Return the location and scale of each site's features.

    Parameters
    ----------
    features, covariates : array of int (p,), (c,)
        Columns that are adjusted, and those whose effect on them is kept.
    controls : int, default=-1
        The column that is not 0 in rows to fit on; -1: all rows.
    shrink : bool, default=True
        Whether estimates borrow strength from those of the other features (empirical Bayes).
    normal_prior : bool, default=True
        A normal and an inverse gamma prior; else the distribution of the other features' estimates.
    mean_only : bool, default=False
        Leave scales as they are.
    tol : float, default=1e-4
        Relative change of the estimates at which the iteration for `normal_prior` ends.
    """
    kept = np.zeros(0, dtype=np.int64) if covariates is None else covariates
    names = np.array(fed.sites, dtype=str)
    first = fed.sum(local_site_sums, names=names, controls=controls)
    counted = CountedRows()
    counted.compare(first)
    d = first["by_site"].shape[1] - 1
    whole(first, by_site=(len(names), d + 1))
    rows = np.rint(first["by_site"][:, 0]).astype(np.int64)
    if (rows < 0).any():
        raise MessageError("a site reports fewer than 0 rows: leave out the site that you do not trust")
    if not rows.sum() > 0:
        raise InputError("no site has rows to fit on: the column of controls is 0 in all rows, or there are no rows")
    means = first["by_site"][:, 1:] / np.maximum(rows, 1)[:, None]
    slopes = np.zeros((0, len(features)))
    form = {"features": features, "covariates": kept, "controls": controls}
    if len(kept):
        products = fed.sum(local_covariate_products, **form)
        whole(products, gram=(len(kept), len(kept)), cross=(len(kept), len(features)))
        slopes = _solved(products["gram"], products["cross"], kept)
    squares = fed.sum(local_residual_squares, names=names, slopes=slopes, **form)["by_site"]
    squares = np.maximum(squares, 0.0)
    own = means[:, features] - means[:, kept] @ slopes  # the sites' intercepts
    mean = rows @ own / rows.sum()
    pooled = squares.sum(axis=0) / rows.sum()
    # A feature that is constant within sites has a location, no scale, and no information about other features.
    varies = pooled > (_ROUNDING * np.abs(mean)) ** 2
    squares, pooled = np.where(varies, squares, 0.0), np.where(varies, pooled, 1.0)
    deviation = np.sqrt(pooled)
    hats, stars = [], []
    for n, centre, spread in zip(rows.tolist(), own, squares / pooled, strict=True):
        if n == 0 or len(rows) == 1:  # nothing to compare with
            hats.append(SiteEffect(np.zeros(len(features)), np.ones(len(features))))
            stars.append(hats[-1])
            continue
        hat = single_features(n, (centre - mean) / deviation, spread, mean_only)
        hats.append(hat)
        stars.append(hat)
        if shrink and varies.sum() >= 2:
            own_hat, own_spread = SiteEffect(hat.gamma[varies], hat.delta[varies]), spread[varies]
            borrowed = (
                parametric(n, own_hat, own_spread, tol, mean_only)
                if normal_prior
                else non_parametric(n, own_hat, own_spread)
            )
            stars[-1] = SiteEffect(hat.gamma.copy(), hat.delta.copy())
            stars[-1].gamma[varies], stars[-1].delta[varies] = borrowed.gamma, borrowed.delta
    tables = [np.stack([getattr(one, key) for one in some]) for some in (hats, stars) for key in ("gamma", "delta")]
    return SiteAdjustment(rows, mean, slopes, deviation, *tables)


def _solved(gram: Matrix, cross: Matrix, covariates: NDArray[np.int64]) -> Matrix:
    """Return the slopes of features on covariates within sites, or refuse covariates that have none."""
    R, kept = triangular_factor(gram)
    if not kept.all():
        which = ", ".join(str(j) for j in covariates[~kept][:10])
        raise InputError(
            f"the covariates in columns {which} are constant within every site, or depend on others: their effect "
            "can't be distinguished from that of the site; leave them out"
        )
    return np.asarray(np.linalg.solve(R, np.linalg.solve(R.T, cross)))
