"""Cox regression by sums on a public grid of times, or with strata by site.

D. R. Cox, "Regression models and life-tables" (1972); ties by Breslow (1974) or Efron (1977); the check of proportional
hazards by Grambsch and Therneau (1994).

Rounds: means; products and counts; then one for each step of Newton's method. The weights c that the information needs
(`cox_sums`) come from sums at the coefficients before, moved on by the step. The error is of second order, and 0 at the
end. Up per site and round: 2 m (q + 1) + q^2 + q numbers for m grid points and q columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix, Vector
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Total
from fedspan.statistics.regression.least_squares import inner_penalty
from fedspan.statistics.regression.parts.design_rows import NO_COLUMN, Design, column_sums
from fedspan.statistics.regression.parts.newton import Evaluation, Optimum, inverse, newton
from fedspan.statistics.survival.cox_sums import (
    Cells,
    evaluated,
    from_the_end,
    local_cox_setup,
    local_cox_sums,
    local_event_moments,
    local_stratified_sums,
    ratios,
)
from fedspan.statistics.survival.event_counts import event_grid, refuse_bad_events
from fedspan.statistics.survival.kaplan_meier import survival_curve
from fedspan.sums.plausible_totals import whole

#: Slow steps in a row after which the likelihood has no maximum.
_PATIENCE = 6


@dataclass(frozen=True)
class CoxFit:
    """A Cox model: coefficients (d,), covariance, likelihoods, deaths, and on the grid the baseline hazard (m,).

    `kept` are the columns that depend on no others. `proportional` has the chi-squares (t, d) of the check for each
    function of time, if there is one.
    """

    coef: Vector
    covariance: Matrix
    kept: NDArray[np.bool_]
    n: int
    deaths: int
    loglik: float
    null_loglik: float
    converged: bool
    rounds: int
    infinite: NDArray[np.bool_] | None
    grid: Vector
    hazard: Vector
    centre: Vector
    transforms: tuple[str, ...] = ()
    proportional: Matrix | None = None


def cox_model(
    fed: Federation,
    *,
    ties: str = "efron",
    times: Vector | None = None,
    stratified: bool = False,
    ridge: float = 0.0,
    drop: bool = False,
    max_rounds: int = 25,
    names: tuple[str, ...] | None = None,
) -> CoxFit:
    """Return the Cox model of all sites' rows.

    Parameters
    ----------
    ties : {"efron", "breslow"}, default="efron"
    times : array (m,), optional
        The grid. Default: all times of events, which the sites then send.
    stratified : bool, default=False
        Compare rows with those of their own site alone. No grid is needed.
    ridge : float, default=0.0
        Half of it, times the squared coefficients, is subtracted from the log-likelihood.
    max_rounds : int, default=25
        Most rounds of Newton's method.
    drop, names
        As of `least_squares`.
    """
    grid = np.zeros(0) if stratified else event_grid(times, fed)
    first = column_sums(names, fed, drop=drop, numeric=False)
    rows = first.counted()
    design = Design(len(first.mean), False, drop=drop, centre=first.mean)
    plain = design.plain()
    raw = fed.sum(local_cox_setup, grid=grid, **plain.payload())
    rows.compare(raw)
    refuse_bad_events(raw["bad"])
    whole(raw, gram=(plain.width, plain.width), count=grid.shape, weight=grid.shape)
    if not stratified and not raw["count"].sum() > 0:
        raise InputError("no row has an event at or before the last time: Cox regression needs events")
    penalty = np.full(design.width, ridge)
    constant = np.diag(raw["gram"]) <= raw["n"] * (raw["n"] * design.centre * np.finfo(np.float64).eps) ** 2
    G = np.where(np.logical_or.outer(constant, constant), 0.0, raw["gram"]) + np.diag(penalty)
    design = design.factored(G, raw["n"])
    P = inner_penalty(design, penalty)
    counts = _with_events(grid, raw)
    state = _Stratified(fed, design, ties) if stratified else _OnGrid(fed, design, ties, counts)
    start = np.zeros(len(design.factor))
    null = state.evaluate(start)
    if not state.deaths:
        raise InputError("no row has an event: Cox regression needs events")
    lost = np.diag(null.information) < NO_COLUMN * max(1.0, float(np.diag(null.information).max(initial=0.0)))
    if lost.any() and not ridge:
        design = design.without(lost, G)
        state = state.with_design(design)
        P, start = inner_penalty(design, penalty), np.zeros(len(design.factor))
        null = state.evaluate(start)
    if not len(start):
        raise InputError(
            "no column differs among the rows that are at risk together: Cox regression needs one that does"
        )
    settings: dict[str, Any] = {"max_rounds": max_rounds, "patience": _PATIENCE}
    settings["separates"] = None if ridge else lambda step, b: True
    end = newton(_first(null, state.evaluate), fed, start=start, penalty=P, **settings)
    H = end.at.information
    bread = inverse(H + P)
    inner = bread @ H @ bread if ridge else bread
    found = CoxFit(
        design.to_columns(end.coef),
        design.covariance(inner),
        design.kept,
        int(raw["n"]),
        state.deaths,
        end.at.loglik,
        null.loglik,
        end.converged,
        end.rounds,
        _infinite(design, end, G),
        counts.grid,
        np.zeros(0),
        design.centre,
    )
    if isinstance(state, _Stratified):
        return found
    # The likelihood's own sums, at the last coefficients: no further round.
    at_risk = from_the_end(state.cells.S0)
    hazard = np.divide(counts.weight, at_risk, out=np.zeros(len(at_risk)), where=at_risk > 0)
    names_of, tests = state.proportional(design, bread)
    return replace(found, hazard=hazard, transforms=names_of, proportional=tests)


@dataclass(frozen=True)
class _Counts:
    """Times with events (m,), and there events, their weights, and the weights of rows that leave (m,)."""

    grid: Vector
    count: Vector
    weight: Vector
    leaving: Vector


def _with_events(grid: Vector, raw: Total) -> _Counts:
    """Return the counts on the grid points that have events: all that the likelihood needs.

    Rows that leave at another one are at risk up to the last with events before it.
    """
    kept = np.flatnonzero(raw["count"] > 0)
    last = np.searchsorted(kept, np.arange(len(grid)), "right") - 1
    leaving = np.bincount(last[last >= 0], raw["leaving"][last >= 0], minlength=len(kept)).astype(np.float64)
    return _Counts(grid[kept], raw["count"][kept], raw["weight"][kept], leaving)


class _OnGrid:
    """The likelihood of rows at risk at all sites, from sums on a grid."""

    def __init__(self, fed: Federation, design: Design, ties: str, counts: _Counts) -> None:
        self.fed, self.design, self.ties, self.grid, self.counts = fed, design, ties, counts.grid, counts
        self.deaths = int(counts.count.sum())
        k = len(design.factor)
        zero = np.zeros((len(counts.grid), k))
        # At coefficients of zero every row has the hazard of its weight.
        self.cells = Cells(counts.count, counts.weight, np.zeros(k), counts.leaving, zero, counts.weight, zero)
        self.coef = np.zeros(k)

    def with_design(self, design: Design) -> _OnGrid:
        return _OnGrid(self.fed, design, self.ties, self.counts)

    def evaluate(self, b: Vector) -> Evaluation:
        c, back = ratios(self._expected(b), self.ties).risk_weights(len(self.grid))
        sent = {"coef": b, "grid": self.grid, "at_risk": np.cumsum(c), "at_event": back}
        total = self.fed.sum(local_cox_sums, **sent, **self.design.payload())
        m, k = len(self.grid), len(b)
        whole(total, S0=(m,), S1=(m, k), E0=(m,), E1=(m, k), products=(k, k), events=(k,))
        parts = {name: total[name] for name in ("events", "S0", "S1", "E0", "E1")}
        self.cells, self.coef = Cells(self.counts.count, self.counts.weight, **parts), b
        if not (ratios(self.cells, self.ties).phi > 0).all():
            raise MessageError(
                "sums over rows at risk are not above 0: the sites that answered are not those that counted"
            )
        return evaluated(self.cells, self.ties, b, total["products"], total.sites)

    def _expected(self, b: Vector) -> Cells:
        """Return the sums to be expected at other coefficients, from those at the last ones."""
        step = b - self.coef
        moved = {}
        for zeroth, first in (("S0", "S1"), ("E0", "E1")):
            sums, products = getattr(self.cells, zeroth), getattr(self.cells, first)
            means = np.divide(products, sums[:, None], out=np.zeros_like(products), where=sums[:, None] > 0)
            moved[zeroth] = sums * np.exp(np.clip(means @ step, -300.0, 300.0))
        return replace(self.cells, **moved)

    def proportional(self, design: Design, bread: Matrix) -> tuple[tuple[str, ...], Matrix]:
        """Return the functions of time, and the chi-squares (t, d) of their products with each covariate."""
        d = self.counts.count
        curves = _functions(self.grid, from_the_end(self.counts.leaving), d)
        names = tuple(curves)
        g = np.stack([curve - (d @ curve) / d.sum() for curve in curves.values()])
        moments = self.fed.sum(local_event_moments, grid=self.grid, weights=g, **design.payload())["moments"]
        found = ratios(self.cells, "efron")
        means = (from_the_end(self.cells.S1)[found.at] - found.gone[:, None] * self.cells.E1[found.at]) / found.phi[
            :, None
        ]
        left = moments - g[:, found.at] @ means  # (t, k): the weighted sum of Schoenfeld's residuals
        M = design.unmapped()
        V = M @ bread @ M.T
        scaled = left @ bread @ M.T
        spread = (g**2) @ d
        with np.errstate(divide="ignore", invalid="ignore"):
            return names, d.sum() * scaled**2 / np.outer(spread, np.diag(V))


class _Stratified:
    """The likelihood of rows among those of their own site, which each site computes by itself."""

    def __init__(self, fed: Federation, design: Design, ties: str) -> None:
        self.fed, self.design, self.ties, self.deaths = fed, design, ties, 0

    def with_design(self, design: Design) -> _Stratified:
        return _Stratified(self.fed, design, self.ties)

    def evaluate(self, b: Vector) -> Evaluation:
        total = self.fed.sum(local_stratified_sums, coef=b, ties=self.ties, **self.design.payload())
        whole(total, gradient=b.shape, information=(len(b), len(b)))
        self.deaths = int(total["deaths"])
        return Evaluation(float(total["loglik"]), total["gradient"], total["information"], total.sites)


def _first(done: Evaluation, evaluate: Callable[[Vector], Evaluation]) -> Callable[[Vector], Evaluation]:
    """Return the function with its first value known."""
    pending = [done]
    return lambda b: pending.pop() if pending else evaluate(b)


def _functions(grid: Vector, at_risk: Vector, events: Vector) -> dict[str, Vector]:
    """Return the functions of time at each grid point, by name; the logarithm only of times above 0."""
    counts = np.rint(np.maximum(at_risk, events)).astype(np.int64), np.rint(events).astype(np.int64)
    found = {"km": 1 - survival_curve(*counts, 0.95)[0], "rank": np.cumsum(events) - (events - 1) / 2, "identity": grid}
    return {**found, "log": np.log(grid)} if (grid > 0).all() else found


def _infinite(design: Design, end: Optimum, G: Matrix) -> NDArray[Any] | None:
    """Return the columns whose coefficients go to infinity, where the iteration did not end."""
    if end.converged:
        return None
    size = np.abs(design.to_columns(end.coef)) * np.sqrt(np.diag(G) / max(1, len(end.left)))
    return np.asarray(size > 0.1 * size.max(initial=0.0))
