"""The inner-product manipulation attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class InnerProduct(KeyAttack):
    """Send ``-eps`` times the mean of the replies of the sites that are not bad.

    What the bad sites would honestly have sent does not count (in `ScaledReverse` it does). A small `eps` is enough to
    turn the inner product of a robust average and the true mean negative when the honest replies disagree.
    Where there is no good site with a value of that shape, all honest values are taken.

    Parameters
    ----------
    eps : float, default=0.1
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    C. Xie, O. Koyejo and I. Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation",
    UAI 2019.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.array([1.0, 2.0])}, "b": {"x": np.array([3.0, 2.0])}, "c": {"x": np.array([9.0, 9.0])}}
    >>> InnerProduct(0.5)(replies, ("c",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'c': {'x': array([-1., -1.])}}
    """

    eps: float = 0.1

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the reversed mean of the good sites."""
        mean: Array = seen.good.mean(axis=0, keepdims=True)
        return -self.eps * mean
