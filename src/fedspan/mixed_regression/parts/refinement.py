"""The loop of every refinement of cluster models: a round function, an accelerator and a stop rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.linalg import Anderson
from fedspan.mixed_regression.parts.cluster_rounds import Belief, Moved
from fedspan.mixed_regression.parts.convergence import DIVERGED, StopRule

WEIGHTS = ("cluster", "total")
ASSIGNMENTS = ("hard", "soft")
_EPS = np.finfo(np.float64).eps
_MOMENTUM = 0.9  # stable for steps that do not overshoot, and ten times as far along a slow direction
_WORSE = 1.01  # times the smallest loss so far
_QUIET = 8  # rounds of the same sites after which steps are extrapolated again


@dataclass(frozen=True)
class Refinement:
    """Refined models of the clusters.

    Attributes
    ----------
    models : array (k, d)
    rows, members : array (k,)
        Numbers of rows and sites of the clusters in the last round (sums of probabilities with soft assignment).
    loss : float
        Mean loss of a row under its site's model, before the last round's change.
    rounds : int
    converged : bool
    trust : dict of site to weight
        The share that an aggregator gave to each site in the last round.
    refused : tuple of int
        The clusters that kept their models in the last round, because the aggregator refused them.
    """

    models: Matrix
    rows: Vector
    members: Vector
    loss: float
    rounds: int
    converged: bool
    trust: Mapping[str, float]
    refused: tuple[int, ...] = ()


class Accelerator:
    """Extrapolate each model from its last `memory` steps (0: take plain steps).

    Rounds of different sites are different maps, from which nothing can be extrapolated: models have momentum then.
    An aggregator may jump from round to round: `cautious` discards the history as soon as the loss grows.
    """

    def __init__(self, memory: int, *, cautious: bool) -> None:
        self._memory, self._cautious = memory, cautious
        self._histories: dict[int, Anderson] = {}
        self._velocity: Matrix = np.zeros(())
        self._quiet, self._least = _QUIET, np.inf

    def next(
        self, models: Matrix, steps: Matrix, loss: float, *, occupied: NDArray[np.bool_], stable: bool, same_sites: bool
    ) -> Matrix:
        """Return the models (k, d) after a round with these `steps`; models of clusters that are not `occupied` stay.

        `stable` is whether clusters and sites were those of the round before, `same_sites` whether the sites were.
        """
        self._quiet = self._quiet + 1 if same_sites else 0
        self._velocity = steps + (_MOMENTUM * self._velocity if self._memory and self._quiet < _QUIET else 0.0)
        worse, self._least = self._cautious and loss > _WORSE * self._least, min(loss, self._least)
        models = models.copy()
        for j in range(len(models)):
            history = self._histories.setdefault(j, Anderson(self._memory))
            if not stable or worse:
                history.forget()
            if occupied[j]:
                quiet = self._quiet >= _QUIET
                models[j] = history.next(models[j], steps[j]) if quiet else models[j] + self._velocity[j]
        return models


def refine(
    one_round: Callable[[Matrix, Belief], Moved],
    fed: Federation,
    models: Matrix,
    *,
    accelerator: Accelerator,
    stop_rule: StopRule,
    weights: str,
    assignment: str,
    max_rounds: int,
    variance: float | None = None,
) -> Refinement:
    """Repeat rounds until the stop rule ends them, or `max_rounds` are over. A cluster without sites keeps its model.

    `weights` and `assignment` are those of `fedx`; `variance` is that of the noise if known, otherwise soft assignments
    learn it.
    """
    models, soft = np.array(models, dtype=np.float64), assignment == "soft"
    belief = Belief(np.full(len(models), 1.0 / len(models)))
    last: Moved | None = None
    reason, number = None, -1
    for number in fed.rounds(max_rounds):
        moved = one_round(models, belief)
        total = max(float(moved.rows.sum()), 1.0)
        loss = moved.loss / total
        steps = (moved.rows / total)[:, None] * moved.change if weights == "total" else moved.change
        same_sites = last is None or moved.heard == last.heard
        same_rows = last is not None and np.array_equal(moved.rows, last.rows)
        same = {"stable": same_sites and (same_rows or (soft and number > 1)), "same_sites": same_sites}
        before, last = models, moved
        models = accelerator.next(before, steps, loss, occupied=moved.rows > 0.0, **same)
        reason = stop_rule.reason(before, models, steps, **same)
        fed.log(loss=loss, moved=stop_rule.moved, smallest=float(moved.rows.min()))
        if soft:
            belief = _learned(moved, models.shape[1], variance)
        if reason is not None:
            fed.stop(reason, converged=True)
    converged, models = reason is not None, stop_rule.result(models)
    return Refinement(models, moved.rows, moved.members, loss, number + 1, converged, moved.trust, moved.refused)


def check(models: Matrix, weights: str, assignment: str, max_rounds: int, tol: float, acceleration: int) -> None:
    """Refuse settings that no refinement takes."""
    if np.ndim(models) != 2 or not np.size(models) or not np.abs(models).max() < DIVERGED:
        raise InputError(
            f"models must be a (k, d) array of finite numbers below {DIVERGED:g}, not of shape {np.shape(models)}"
        )
    one_of("weights", weights, WEIGHTS)
    one_of("assignment", assignment, ASSIGNMENTS)
    whole_number("max_rounds", max_rounds, 1)
    real_number("tol", tol, least=0)
    whole_number("acceleration", acceleration, 0)


def _learned(moved: Moved, d: int, known: float | None) -> Belief:
    """Return the shares and the noise of the last round."""
    total = float(moved.rows.sum())
    shares = moved.members / max(float(moved.members.sum()), 1.0)
    if known is not None:
        return Belief(shares, known)
    free = total - d * np.count_nonzero(moved.rows > 0.0)
    variance = moved.loss / (free if free > 0.1 * total else max(total, 1.0))
    return Belief(shares, max(variance, _EPS * max(moved.loss, 1.0)))  # without noise, rounding errors would decide
