"""The attack that hides in the spread of the honest replies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class ALittleIsEnough(KeyAttack):
    """Send ``mean - z * std``, entry by entry, over the sites that are not bad.

    Those are the replies that the coordinator will compare it with. The standard deviation is that of a population
    (divided by their number); where only one good site answered it is 0. For complex values it is that of the distance
    from the mean, a real number. Where there is no good site of that shape, all honest values are taken.

    Parameters
    ----------
    z : float, default=1.5
        How far in the spread to go. About 1 to 1.5 is hard to tell from an honest reply.
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    M. Baruch, G. Baruch and Y. Goldberg, "A little is enough: circumventing defenses for distributed learning",
    NeurIPS 2019.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.array([1.0, 2.0])}, "b": {"x": np.array([3.0, 2.0])}, "c": {"x": np.array([9.0, 9.0])}}
    >>> ALittleIsEnough(1.5)(replies, ("c",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'c': {'x': array([0.5, 2. ])}}
    """

    z: float = 1.5

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the mean less z standard deviations."""
        mean: Array = seen.good.mean(axis=0, keepdims=True)
        std: Array = seen.good.std(axis=0, keepdims=True)
        return mean - self.z * std
