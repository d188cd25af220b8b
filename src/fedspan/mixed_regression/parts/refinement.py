"""The loop of every refinement of cluster models: a round function, an accelerator and a stop rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.linalg import Anderson
from fedspan.mixed_regression.parts.cluster_rounds import Belief, MovedModels

WEIGHTS = ("cluster", "total")
ASSIGNMENTS = ("hard", "soft")
_EPS, _TINY = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
_MOMENTUM = 0.9  # stable for steps that do not overshoot, and ten times as far along a slow direction
_WORSE = 1.01  # times the smallest loss so far
_QUIET = 8  # rounds of the same sites after which steps are extrapolated again
_DIVERGED = 1e100
_GROWN = 1e8  # times the length at first, with the first step: models that fit are nearer
_ROUNDING = 64.0 * _EPS
_SHORTEST = 16  # block of rounds
_BLOCKS = 2  # in a row: the first may be as wide as it is because models swing in
_OFTEN = 0.25  # of the rounds: with fewer changes of sites, an iteration converges in between


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

    def next(self, models: Matrix, steps: Matrix, moved: MovedModels, *, stable: bool, same_sites: bool) -> Matrix:
        """Return the models (k, d) after a round with these `steps`; models of clusters without rows stay.

        `stable` is whether clusters and sites were those of the round before, `same_sites` whether the sites were.
        """
        self._quiet = self._quiet + 1 if same_sites else 0
        self._velocity = steps + (_MOMENTUM * self._velocity if self._memory and self._quiet < _QUIET else 0.0)
        worse, self._least = (
            self._cautious and moved.mean_loss > _WORSE * self._least,
            min(moved.mean_loss, self._least),
        )
        models = models.copy()
        for j in range(len(models)):
            history = self._histories.setdefault(j, Anderson(self._memory))
            if not stable or worse:
                history.forget()
            if moved.rows[j] > 0.0:
                quiet = self._quiet >= _QUIET
                models[j] = history.next(models[j], steps[j]) if quiet else models[j] + self._velocity[j]
        return models


class StopRule:
    """Stop when clusters stay and no model moves by more than `tol` of the longest one; never with ``tol=0``.

    Where sites drop out and return, models never settle: stop when they vary about a mean, which is then the result.
    Lengths of models are those of their difference from `origin` (d,), by default 0. A large mean of the targets must
    not stop a refinement early.
    """

    def __init__(self, tol: float, origin: Vector | None = None) -> None:
        self.tol = tol
        self.moved = 0.0  # in the last round, relative to the longest model
        self._origin = 0.0 if origin is None else np.asarray(origin, dtype=np.float64)
        self._first: float | None = None
        self._noisy = NoisyConvergence()

    def reason(self, before: Matrix, models: Matrix, steps: Matrix, *, stable: bool, same_sites: bool) -> str | None:
        """Return why to stop after a round that led from `before` to `models` (k, d), or ``None`` to continue.

        `stable` is whether clusters and sites were those of the round before, `same_sites` whether the sites were.
        """
        size, step = _length(models - self._origin), _length(steps)
        if self._first is None:
            self._first = _length(before - self._origin) + step
        if not (np.abs(models).max() < _DIVERGED and size <= _GROWN * max(self._first, _TINY)):
            raise InputError(
                "the models diverged: use a smaller step, or an aggregator if sites may be malicious (one that is in "
                "use was outvoted within a cluster)"
            )
        self.moved = step / max(size, _TINY)
        if not self.tol > 0.0:
            return None
        if stable and step <= max(self.tol * size, _ROUNDING * _length(models)):  # no finer than the models' rounding
            return f"converged: no model moved by more than {self.tol:g} of the longest one"
        if self._noisy.done(models, same_sites=same_sites):
            rounds = self._noisy.count
            return f"converged: sites come and go, and the models of {rounds} rounds wander about their mean"
        return None

    def result(self, models: Matrix) -> Matrix:
        """Return the last models, or the mean of those that vary about it."""
        return self._noisy.mean(models) if self.tol > 0.0 else models


class NoisyConvergence:
    """Watch models in blocks of rounds, each longer by half than the previous one.

    While models still approach their limit, the mean of a block is far from that of the block before. Afterwards it is
    within the deviation that absent sites cause, twice in a row. The mean of the last block is then the result (B. T.
    Polyak and A. B. Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim., 1992).

    Examples
    --------
    >>> rng, watch, x = np.random.default_rng(0), NoisyConvergence(), np.full((1, 2), 9.0)
    >>> for _ in range(100):
    ...     x = x - 0.5 * (x + 0.1 * rng.standard_normal(x.shape))
    ...     if watch.done(x, same_sites=False):
    ...         break
    >>> bool(watch.count < 100), bool(np.abs(watch.mean(x)).max() < 0.05)
    (True, True)
    """

    def __init__(self) -> None:
        self.count = 0  # of the rounds of the present block
        self._length, self._within = _SHORTEST, 0
        self._changes, self._squares = 0, 0.0
        self._mean: Matrix = np.zeros(())
        self._before: Matrix | None = None

    def done(self, models: Matrix, *, same_sites: bool) -> bool:
        """Take the models after a round, and whether the same sites replied as in the round before."""
        if self.count == self._length:  # it was not done then: the next block
            self._length, self._before = 3 * self._length // 2, self._mean
            self.count, self._changes, self._squares, self._mean = 0, 0, 0.0, np.zeros(())
        self.count += 1
        self._changes += not same_sites
        away = models - self._mean
        self._mean = self._mean + away / self.count
        self._squares += float(np.sum(away * (models - self._mean)))
        if self.count < self._length or self._before is None:
            return False
        near = float(np.sum((self._mean - self._before) ** 2)) <= self._squares / self.count
        self._within = self._within + 1 if near and self.is_noisy else 0
        return self._within >= _BLOCKS

    @property
    def is_noisy(self) -> bool:
        """Whether the sites that reply change so often that models can't stay."""
        return 2 * self.count >= _SHORTEST and self._changes >= _OFTEN * self.count

    def mean(self, models: Matrix) -> Matrix:
        """Return the mean over the present block, or the `models` themselves where they settle."""
        return np.asarray(self._mean) if self.is_noisy else models


def refine(
    one_round: Callable[[Matrix, Belief], MovedModels],
    fed: Federation,
    models: Matrix,
    *,
    accelerator: Accelerator,
    stop_rule: StopRule,
    weights: str = "cluster",
    assignment: str = "hard",
    max_rounds: int = 400,
    variance: float | None = None,
) -> Refinement:
    """Repeat rounds until the stop rule ends them, or `max_rounds` are over. A cluster without sites keeps its model.

    `weights` and `assignment` are those of `fedx`; `variance` is that of the noise if known, otherwise soft assignments
    learn it.
    """
    models, soft = np.array(models, dtype=np.float64), assignment == "soft"
    belief = Belief(np.full(len(models), 1.0 / len(models)))
    last: MovedModels | None = None
    reason, number = None, -1
    for number in fed.rounds(max_rounds):
        moved = one_round(models, belief)
        share = moved.rows / max(float(moved.rows.sum()), 1.0)
        steps = share[:, None] * moved.change if weights == "total" else moved.change
        same_sites = last is None or moved.heard == last.heard
        same_rows = last is not None and np.array_equal(moved.rows, last.rows)
        same = {"stable": same_sites and (same_rows or (soft and number > 1)), "same_sites": same_sites}
        before, last = models, moved
        models = accelerator.next(before, steps, moved, **same)
        reason = stop_rule.reason(before, models, steps, **same)
        fed.log(loss=moved.mean_loss, moved=stop_rule.moved, smallest=float(moved.rows.min()))
        if soft:
            belief = _learned(moved, models.shape[1], variance)
        if reason is not None:
            fed.stop(reason, converged=True)
    models, converged = stop_rule.result(models), reason is not None
    loss, rounds = moved.mean_loss, number + 1
    return Refinement(models, moved.rows, moved.members, loss, rounds, converged, moved.trust, moved.refused)


def refine_accelerated(
    one_round: Callable[[Matrix, Belief], MovedModels],
    fed: Federation,
    models: Matrix,
    aggregator: Aggregator | None,
    *,
    tol: float = 0.0,
    acceleration: int = 0,
    origin: Vector | None = None,
    **options: Any,
) -> Refinement:
    """Refine with Anderson's extrapolation until the models stay; parameters are those of `fedx` and `refine`."""
    if np.ndim(models) != 2 or not np.size(models) or not np.abs(models).max() < _DIVERGED:
        raise InputError(
            f"models must be a (k, d) array of finite numbers below {_DIVERGED:g}, not of shape {np.shape(models)}"
        )
    one_of("weights", options.get("weights", "cluster"), WEIGHTS)
    one_of("assignment", options.get("assignment", "hard"), ASSIGNMENTS)
    whole_number("max_rounds", options.get("max_rounds", 1), 1)
    real_number("tol", tol, least=0)
    whole_number("acceleration", acceleration, 0)
    accelerator = Accelerator(acceleration, cautious=aggregator is not None)
    return refine(one_round, fed, models, accelerator=accelerator, stop_rule=StopRule(tol, origin), **options)


def _length(models: Matrix) -> float:
    """Return the length of the longest model."""
    return float(np.linalg.norm(models, axis=1).max())


def _learned(moved: MovedModels, d: int, known: float | None) -> Belief:
    """Return the shares and the noise of the last round."""
    total = float(moved.rows.sum())
    shares = moved.members / max(float(moved.members.sum()), 1.0)
    if known is not None:
        return Belief(shares, known)
    free = total - d * np.count_nonzero(moved.rows > 0.0)
    variance = moved.loss / (free if free > 0.1 * total else max(total, 1.0))
    return Belief(shares, max(variance, _EPS * max(moved.loss, 1.0)))  # without noise, rounding errors would decide
