"""What the sites add up for Cox regression: sums over the rows that leave at each grid point.

With ``w_i = exp(z_i' b)``, a site sends two sums of w and w z for each grid point k. One is over the rows that leave
there, the other over those that have the event there. The coordinator adds them up from the end: S0 and S1 over the
rows at risk. The matrix S2 of all products would take q^2 numbers at each grid point. But the information needs only
its weighted sum

    sum_k c_k S2_k = sum_i w_i z_i z_i' C_i,    C_i = sum of c_k over the grid points k at which row i is at risk,

which a site can add up if it knows c. So q^2 numbers are enough, and a grid point costs 2 (q + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.federation.site.parameters import Matrix, OneOf, Vector
from fedspan.statistics.regression.parts.design_rows import (
    COUNTED,
    DesignForm,
    design_rows,
    fewest_complete,
    with_site_effects,
)
from fedspan.statistics.regression.parts.newton import Evaluation
from fedspan.statistics.survival.event_counts import Grid, last_at_risk, smallest_cell, times_and_events, usable

TIES = ("efron", "breslow")
Ties = Annotated[str, OneOf(TIES)]


@dataclass(frozen=True)
class Cells:
    """Sums by grid point (m,) or (m, k): of rows that leave, and of rows with events there.

    `count` and `weight` of events do not depend on coefficients; `events` is the sum of z over all events.
    """

    count: Vector
    weight: Vector
    events: Vector
    S0: Vector
    S1: Matrix
    E0: Vector
    E1: Matrix


@dataclass(frozen=True)
class Ratios:
    """What the partial likelihood has at each event: grid point, weight, share of the ties that have left, and sum."""

    at: NDArray[np.int64]
    weight: Vector
    gone: Vector
    phi: Vector

    def risk_weights(self, m: int) -> tuple[Vector, Vector]:
        """Return c (m,), for rows at risk, and what is taken back for rows with the event (m,)."""
        return _by_cell(self.at, self.weight / self.phi, m), _by_cell(self.at, self.weight * self.gone / self.phi, m)


def ratios(cells: Cells, ties: str) -> Ratios:
    """Return the sums over the rows at risk at each event; Efron's take back a part of the rows with tied events."""
    d = np.rint(cells.count).astype(np.int64)
    at = np.repeat(np.arange(len(d)), d)
    order = np.arange(len(at)) - np.repeat(np.cumsum(d) - d, d)
    gone = order / d[at] if ties == "efron" else np.zeros(len(at))
    phi = from_the_end(cells.S0)[at] - gone * cells.E0[at]
    return Ratios(at, (cells.weight / np.maximum(d, 1))[at], gone, phi)


def from_the_end(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sums over the rows at risk from those over the rows that leave."""
    return np.asarray(np.cumsum(sums[::-1], axis=0)[::-1])


def evaluated(cells: Cells, ties: str, b: Vector, products: Matrix, sites: tuple[str, ...] = ()) -> Evaluation:
    """Return log partial likelihood, gradient and information; `products` is the weighted sum of S2."""
    found = ratios(cells, ties)
    means = (from_the_end(cells.S1)[found.at] - found.gone[:, None] * cells.E1[found.at]) / found.phi[:, None]
    loglik = float(cells.events @ b - found.weight @ np.log(found.phi))
    gradient = cells.events - found.weight @ means
    return Evaluation(loglik, gradient, products - means.T @ (found.weight[:, None] * means), sites)


def fewest_at_once(site: Site, grid: Vector, **form: Any) -> int:
    """Return the fewest rows that leave with, or without, their event at one grid point or before all, if any do.

    The sums over rows that leave less those over events are about the others, and so are sums over all rows less these.
    """
    return min(smallest_cell(site, grid), fewest_complete(site, form["drop"]))


@step(
    "survival.cox_setup",
    reveals="sums",
    weighted=True,
    counts=["n"],
    fewest=fewest_at_once,
    fewest_in_sums=False,
    by_site=with_site_effects,
)
def local_cox_setup(site: Site, grid: Grid, **form: Unpack[DesignForm]) -> dict[str, Any]:
    """Leaves the site: n, sums of products of columns; by grid point, leaving weights, and events and their weights."""
    m, k = len(grid), len(form["factor"])
    found: dict[str, Any] = {"n": 0, "bad": 0, "gram": np.zeros((k, k)), "leaving": np.zeros(m)}
    found |= {"count": np.zeros(m), "weight": np.zeros(m)}
    for rows in design_rows(site, **form):
        times, events = times_and_events(rows.y)
        at, happens = last_at_risk(times, events, grid)
        seen = at >= 0
        found["n"] += len(times)
        found["bad"] += int((~usable(times, events)).sum())
        found["gram"] += rows.Z.T @ rows.Z
        found["leaving"] += np.bincount(at[seen], rows.weights[seen], minlength=m)
        found["count"] += np.bincount(at[happens], minlength=m)
        found["weight"] += np.bincount(at[happens], rows.weights[happens], minlength=m)
    return found


@step(
    "survival.cox_sums",
    reveals="sums",
    weighted=True,
    fewest=fewest_at_once,
    fewest_in_sums=False,
    by_site=with_site_effects,
)
def local_cox_sums(
    site: Site, coef: Vector, grid: Grid, at_risk: Vector, at_event: Vector, **form: Unpack[DesignForm]
) -> dict[str, Any]:
    """Leaves the site: by grid point, sums of w and w z over rows that leave and that have events; a sum of w z z'.

    `at_risk` is the sum of c up to each grid point, and `at_event` what is taken back for rows with the event there.
    """
    m, k = len(grid), len(coef)
    if not len(at_risk) == len(at_event) == m:
        raise InputError("at_risk and at_event must have one number for each time of the grid")
    found: dict[str, Any] = {"events": np.zeros(k), "products": np.zeros((k, k))}
    found |= {"S0": np.zeros(m), "S1": np.zeros((m, k)), "E0": np.zeros(m), "E1": np.zeros((m, k))}
    for rows in design_rows(site, **form):
        at, happens = last_at_risk(*times_and_events(rows.y), grid)
        _add(found, rows.Z, rows.weights, at, happens, coef)
        w = _hazards(rows.Z, rows.weights, coef)
        seen = at >= 0
        v = np.where(seen, w * (at_risk[at] - happens * at_event[at]), 0.0) if m else np.zeros(len(w))
        found["products"] += rows.Z.T @ (v[:, None] * rows.Z)
    return found


@step("survival.stratified_sums", reveals="sums", weighted=True, by_site=with_site_effects, **COUNTED)
def local_stratified_sums(site: Site, coef: Vector, ties: Ties, **form: Unpack[DesignForm]) -> dict[str, Any]:
    """Leaves the site: the log partial likelihood of its rows among themselves, its gradient and information."""
    k = len(coef)
    parts = list(design_rows(site, **form))
    if not parts:  # a site without rows
        return {"loglik": 0.0, "gradient": np.zeros(k), "information": np.zeros((k, k)), "deaths": 0}
    Z, weights = np.concatenate([part.Z for part in parts]), np.concatenate([part.weights for part in parts])
    times, events = times_and_events(np.concatenate([part.y for part in parts]))
    grid = np.unique(times[events == 1])
    m = len(grid)
    if not m:
        return {"loglik": 0.0, "gradient": np.zeros(k), "information": np.zeros((k, k)), "deaths": 0}
    at, happens = last_at_risk(times, events, grid)
    found: dict[str, Any] = {"events": np.zeros(k)}
    found |= {"S0": np.zeros(m), "S1": np.zeros((m, k)), "E0": np.zeros(m), "E1": np.zeros((m, k))}
    _add(found, Z, weights, at, happens, coef)
    count = np.bincount(at[happens], minlength=m).astype(np.float64)
    cells = Cells(count, _by_cell(at[happens], weights[happens], m), **found)
    c, back = ratios(cells, ties).risk_weights(m)
    w = _hazards(Z, weights, coef)
    v = np.where(at >= 0, w * (np.cumsum(c)[at] - happens * back[at]), 0.0)
    value = evaluated(cells, ties, coef, Z.T @ (v[:, None] * Z))
    deaths = int(happens.sum())
    return {"loglik": value.loglik, "gradient": value.gradient, "information": value.information, "deaths": deaths}


@step(
    "survival.event_moments",
    reveals="sums",
    weighted=True,
    fewest=fewest_at_once,
    fewest_in_sums=False,
    by_site=with_site_effects,
)
def local_event_moments(site: Site, grid: Grid, weights: Matrix, **form: Unpack[DesignForm]) -> dict[str, Any]:
    """Leaves the site: for each row of `weights` (t, m), the sum of z over all events, weighted by their grid point."""
    found = np.zeros((len(weights), len(form["factor"])))
    for rows in design_rows(site, **form):
        at, happens = last_at_risk(*times_and_events(rows.y), grid)
        found += weights[:, at[happens]] @ rows.Z[happens]
    return {"moments": found}


def _by_cell(cells: NDArray[np.int64], values: Vector, m: int) -> Vector:
    """Return the sum of the values of each of m cells."""
    return np.bincount(cells, values, minlength=m).astype(np.float64)


def _hazards(Z: Matrix, weights: Vector, coef: Vector) -> Vector:
    return np.asarray(weights * np.exp(np.clip(Z @ coef, -300.0, 300.0)))


def _add(
    found: dict[str, Any], Z: Matrix, weights: Vector, at: NDArray[np.int64], happens: NDArray[np.bool_], coef: Vector
) -> None:
    """Add the sums of rows to those by grid point."""
    m, w = len(found["S0"]), _hazards(Z, weights, coef)
    found["events"] += weights[happens] @ Z[happens]
    for rows, zeroth, first in ((at >= 0, "S0", "S1"), (happens, "E0", "E1")):
        cells, own = at[rows], w[rows]
        found[zeroth] += np.bincount(cells, own, minlength=m)
        for j in range(Z.shape[1]):
            found[first][:, j] += np.bincount(cells, own * Z[rows, j], minlength=m)
