"""When to stop an iteration whose map changes from round to round, because sites come and go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_SHORTEST = 16
_BLOCKS = 2  # in a row: the first may be as wide as it is because models swing in
_OFTEN = 0.25  # of the rounds: with fewer changes of who answers, an iteration converges in between


class Wandering:
    """Watches models in blocks of rounds, each longer by half than the one before.

    While models are on their way, the mean of a block is far from that of the block before; when they have arrived, it
    is twice within the deviation that those who are absent make. The mean of the last block is then the result (B. T.
    Polyak and A. B. Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim., 1992).

    Examples
    --------
    >>> rng, watch, x = np.random.default_rng(0), Wandering(), np.full((1, 2), 9.0)
    >>> for _ in range(100):
    ...     x = x - 0.5 * (x + 0.1 * rng.standard_normal(x.shape))
    ...     if watch.done(x, others=True):
    ...         break
    >>> bool(watch.count < 100), bool(np.abs(watch.middle(x)).max() < 0.05)
    (True, True)
    """

    def __init__(self) -> None:
        self.count = 0  # of the rounds of the present block
        self._length, self._within = _SHORTEST, 0
        self._changes, self._squares = 0, 0.0
        self._mean: Matrix = np.zeros(())
        self._before: Matrix | None = None

    def done(self, models: Matrix, *, others: bool) -> bool:
        """Take the models after a round, and whether other sites answered than in the round before."""
        if self.count == self._length:  # it was not done then: the next block
            self._length, self._before = 3 * self._length // 2, self._mean
            self.count, self._changes, self._squares, self._mean = 0, 0, 0.0, np.zeros(())
        self.count += 1
        self._changes += others
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
        """Whether those who answer change so often that nothing else can be waited for."""
        return 2 * self.count >= _SHORTEST and self._changes >= _OFTEN * self.count

    def middle(self, models: Matrix) -> Matrix:
        """Return the mean over the present block, or the `models` themselves where they do not wander."""
        return np.asarray(self._mean) if self.is_wandering else models
