"""When to stop a refinement: models stay, or wander about a mean because sites come and go; or models diverge."""

from __future__ import annotations

import numpy as np

from fedspan.errors import InputError
from fedspan.federation.site.parameters import Matrix, Vector

DIVERGED = 1e100
_GROWN = 1e8  # times the length at first, with the first step: models that fit are nearer
_ROUNDING = 64.0 * np.finfo(np.float64).eps
_TINY = np.finfo(np.float64).tiny
_SHORTEST = 16
_BLOCKS = 2  # in a row: the first may be as wide as it is because models swing in
_OFTEN = 0.25  # of the rounds: with fewer changes of sites, an iteration converges in between


class StopRule:
    """Stop when clusters stay and no model moves by more than `tol` of the longest one; never with ``tol=0``.

    Where sites come and go, models never stay: stop when they wander about a mean, which is then the result. Lengths of
    models are those of their difference from `origin` (d,), by default 0: a large mean of the targets must not stop a
    refinement early.
    """

    def __init__(self, tol: float, origin: Vector | None = None) -> None:
        self.tol = tol
        self.moved = 0.0  # in the last round, relative to the longest model
        self._origin = 0.0 if origin is None else np.asarray(origin, dtype=np.float64)
        self._first: float | None = None
        self._wandering = Wandering()

    def reason(self, before: Matrix, models: Matrix, steps: Matrix, *, stable: bool, same_sites: bool) -> str | None:
        """Return why to stop after a round that led from `before` to `models` (k, d), or ``None`` to continue.

        `stable` is whether clusters and sites were those of the round before, `same_sites` whether the sites were.
        """
        size, step = _length(models - self._origin), _length(steps)
        if self._first is None:
            self._first = _length(before - self._origin) + step
        if not (np.abs(models).max() < DIVERGED and size <= _GROWN * max(self._first, _TINY)):
            raise InputError(
                "the models diverged: use a smaller step, or an aggregator if sites may be malicious (one that is in "
                "use was outvoted within a cluster)"
            )
        self.moved = step / max(size, _TINY)
        if not self.tol > 0.0:
            return None
        if stable and step <= max(self.tol * size, _ROUNDING * _length(models)):  # no finer than the models' rounding
            return f"converged: no model moved by more than {self.tol:g} of the longest one"
        if self._wandering.done(models, same_sites=same_sites):
            rounds = self._wandering.count
            return f"converged: sites come and go, and the models of {rounds} rounds wander about their mean"
        return None

    def result(self, models: Matrix) -> Matrix:
        """Return the last models, or the mean of those that wander."""
        return self._wandering.mean(models) if self.tol > 0.0 else models


class Wandering:
    """Watch models in blocks of rounds, each longer by half than the one before.

    While models still approach their limit, the mean of a block is far from that of the block before. Afterwards it is
    within the deviation that absent sites cause, twice in a row. The mean of the last block is then the result (B. T.
    Polyak and A. B. Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim., 1992).

    Examples
    --------
    >>> rng, watch, x = np.random.default_rng(0), Wandering(), np.full((1, 2), 9.0)
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
        self._within = self._within + 1 if near and self.is_wandering else 0
        return self._within >= _BLOCKS

    @property
    def is_wandering(self) -> bool:
        """Whether the sites that reply change so often that models can't stay."""
        return 2 * self.count >= _SHORTEST and self._changes >= _OFTEN * self.count

    def mean(self, models: Matrix) -> Matrix:
        """Return the mean over the present block, or the `models` themselves where they do not wander."""
        return np.asarray(self._mean) if self.is_wandering else models


def _length(models: Matrix) -> float:
    """Return the length of the longest model."""
    return float(np.linalg.norm(models, axis=1).max())
