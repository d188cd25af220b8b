"""What all refinements of cluster models share: rounds, weights, extrapolation, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Total
from fedspan.linalg import Anderson
from fedspan.mixed_regression.parts.noisy_convergence import Wandering
from fedspan.sums.plausible_totals import refuse_absurd

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

WEIGHTS = ("cluster", "total")
ASSIGNMENTS = ("hard", "soft")
_DIVERGED = 1e100
_GROWN = 1e8  # times the length at first, with the first step: no model that fits is so far
_ROUNDING = 64.0 * np.finfo(np.float64).eps
_TINY = np.finfo(np.float64).tiny
_MOMENTUM = 0.9  # stable for steps that do not overshoot, and ten times as far along a slow direction
_WORSE = 1.01  # times the smallest loss so far
_QUIET = 8  # rounds of the same sites after which steps are extrapolated again


@dataclass(frozen=True)
class Belief:
    """What sites need to weigh clusters softly: the clusters' `shares` of the sites (k,) and the noise's `variance`.

    Without a variance every site belongs to the cluster of its smallest loss.
    """

    shares: Vector
    variance: float | None = None

    def payload(self) -> dict[str, object]:
        """Return it as it travels."""
        return {"shares": self.shares, "variance": self.variance}


@dataclass(frozen=True)
class Moved:
    """What one round did: the clusters' mean `change` (k, d), their `rows` and `members` (k,), and the total `loss`.

    `heard` are the sites that answered, `refused` the clusters that an aggregator refused or that did not answer.
    """

    change: Matrix
    rows: Vector
    members: Vector
    loss: float
    heard: tuple[str, ...]
    trust: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refinement:
    """Refined models of the clusters.

    Attributes
    ----------
    models : array (k, d)
    rows, members : array (k,)
        How many rows and sites the clusters had in the last round (sums of probabilities where assignment is soft).
    loss : float
        Mean loss of a row under its site's model, before the last round's change.
    rounds : int
    converged : bool
    trust : dict of site to weight
        Of the last round: what share an aggregator gave to each site.
    refused : tuple of int
        The clusters that the last round left where they were, because the aggregator refused them.
    """

    models: Matrix
    rows: Vector
    members: Vector
    loss: float
    rounds: int
    converged: bool
    trust: Mapping[str, float]
    refused: tuple[int, ...] = ()


def refine(
    one_round: Callable[[Matrix, Belief], Moved],
    fed: Federation,
    models: Matrix,
    *,
    weights: str,
    assignment: str,
    max_rounds: int,
    tol: float,
    acceleration: int,
    variance: float | None = None,
    cautious: bool = False,
    origin: Vector | None = None,
) -> Refinement:
    """Repeat rounds until the models stay, or `max_rounds` are over. A cluster without sites keeps its model.

    Where sites come and go the models never stay: rounds end when they wander about a middle, and that is returned.
    Rounds of different sites are different maps, from which nothing can be extrapolated: models have momentum then.

    `variance` is that of the noise where it is known; otherwise soft assignments learn it. Where replies are combined
    by a rule that jumps, `cautious` forgets what was extrapolated as soon as the loss grows. Lengths of models are
    those of their difference from `origin` (d,), by default 0: a large mean of the targets is no reason to stop early.
    """
    check(models, weights, assignment, max_rounds, tol, acceleration)
    models = np.array(models, dtype=np.float64)
    k, d = models.shape
    middle = np.zeros(d) if origin is None else np.asarray(origin, dtype=np.float64)
    first = _length(models - middle)
    belief = Belief(np.full(k, 1.0 / k))
    faster = [Anderson(acceleration) for _ in range(k)]
    before, heard, converged, number = np.full(k, -1.0), None, False, -1
    least = np.inf  # loss so far
    wandering, velocity, quiet = Wandering(), np.zeros((k, d)), _QUIET
    for number in fed.rounds(max_rounds):
        moved = one_round(models, belief)
        total = float(moved.rows.sum())
        part = moved.rows / max(total, 1.0) if weights == "total" else np.ones(k)
        steps = part[:, None] * moved.change
        others = heard is not None and moved.heard != heard
        stable = not others and (np.array_equal(moved.rows, before) or (assignment == "soft" and number > 1))
        before, heard, quiet = moved.rows, moved.heard, 0 if others else quiet + 1
        velocity = steps + (_MOMENTUM * velocity if acceleration and quiet < _QUIET else 0.0)
        loss = moved.loss / max(total, 1.0)
        worse, least = cautious and loss > _WORSE * least, min(loss, least)
        for j in range(k):
            if not stable or worse:
                faster[j].forget()
            if moved.rows[j] > 0.0:
                models[j] = faster[j].next(models[j], steps[j]) if quiet >= _QUIET else models[j] + velocity[j]
        size, step = _length(models - middle), _length(steps)
        first = first + step if number == 0 else first
        if not (np.abs(models).max() < _DIVERGED and size <= _GROWN * max(first, _TINY)):
            raise InputError(
                f"the models diverged in round {number}: use a smaller step, or an aggregator if sites may lie "
                "(one that is in use was outvoted within a cluster)"
            )
        # Nothing is finer than the rounding of the models themselves.
        enough = max(tol * size, _ROUNDING * _length(models)) if tol > 0.0 else -1.0
        furthest = step / max(size, _TINY)
        fed.log(loss=loss, moved=furthest, smallest=float(moved.rows.min()))
        if assignment == "soft":
            belief = _belief(moved, d, variance)
        if stable and step <= enough:
            converged = True
            fed.stop(f"converged: no model moved by more than {tol:g} of the longest one", converged=True)
        elif wandering.done(models, others=others) and tol > 0.0:
            converged = True
            fed.stop(
                f"converged: sites come and go, and the models of {wandering.count} rounds wander about their mean",
                converged=True,
            )
    if tol > 0.0:
        models = wandering.middle(models)
    loss = moved.loss / max(total, 1.0)
    return Refinement(models, moved.rows, moved.members, loss, number + 1, converged, moved.trust, moved.refused)


def _length(models: Matrix) -> float:
    """Return the length of the longest model."""
    return float(np.linalg.norm(models, axis=1).max())


def moved_by(total: Total) -> Moved:
    """Return what the summed replies (k, d + 3) of a round say: n times the change, n, 1 and the loss of each site."""
    sums = total["sums"]
    rows, members, losses = sums[:, -3:].T
    refuse_absurd(rows, members)
    if not (rows >= 0.0).all() or not (members >= 0.0).all():
        raise InputError("sites sent negative numbers of rows: use an aggregator if some may lie")
    with np.errstate(over="ignore"):  # whoever moves the models sees that they diverged
        change = sums[:, :-3] / np.where(rows > 0.0, rows, 1.0)[:, None]
        return Moved(change, rows.copy(), members, float(losses.sum()), total.sites)


def responsibilities(losses: Vector, shares: Vector, variance: float | None) -> Vector:
    """Return how much a site belongs to each cluster (k,), by its losses: squared errors, or minus log-likelihoods.

    Squared errors have Gaussian noise of `variance`; losses that are log-likelihoods already have the variance 1/2.
    """
    if variance is None:
        hard = np.zeros(len(losses))
        hard[int(losses.argmin())] = 1.0
        return hard
    score = np.log(np.maximum(shares, np.finfo(np.float64).tiny)) - (losses - losses.min()) / (2.0 * variance)
    odds = np.exp(score - score.max())
    return np.asarray(odds / odds.sum())


def check(models: Matrix, weights: str, assignment: str, max_rounds: int, tol: float, acceleration: int) -> None:
    """Refuse settings that no refinement takes."""
    if np.ndim(models) != 2 or not np.size(models) or not np.abs(models).max() < _DIVERGED:
        raise InputError(
            f"models must be a (k, d) array of finite numbers below {_DIVERGED:g}, not of shape {np.shape(models)}"
        )
    if weights not in WEIGHTS:
        raise InputError(f"weights={weights!r} must be 'cluster' (n_i / N_j) or 'total' (n_i / N)")
    if assignment not in ASSIGNMENTS:
        raise InputError(f"assignment={assignment!r} must be 'hard' or 'soft'")
    if max_rounds < 1:
        raise InputError(f"max_rounds={max_rounds} must be at least 1")
    if not tol >= 0.0:
        raise InputError(f"tol={tol} must be at least 0")
    if acceleration < 0:
        raise InputError(f"acceleration={acceleration} must be at least 0")


def _belief(moved: Moved, d: int, known: float | None) -> Belief:
    """Return the shares and the noise that the last round saw."""
    total = float(moved.rows.sum())
    shares = moved.members / max(float(moved.members.sum()), 1.0)
    if known is not None:
        return Belief(shares, known)
    free = total - d * np.count_nonzero(moved.rows > 0.0)
    variance = moved.loss / (free if free > 0.1 * total else max(total, 1.0))
    # No noise at all would make probabilities of rounding errors.
    return Belief(shares, max(variance, np.finfo(np.float64).eps * max(moved.loss, 1.0)))
