"""The sign-flipping attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class SignFlip(KeyAttack):
    """Send ``-x`` where ``x`` is what the bad site would honestly have sent.

    Parameters
    ----------
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    L. Li, W. Xu, T. Chen, G. B. Giannakis and Q. Ling, "RSA: Byzantine-robust stochastic aggregation methods for
    distributed learning from heterogeneous datasets", AAAI 2019.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.array([1.0, 2.0])}, "b": {"x": np.array([3.0, 4.0])}}
    >>> SignFlip()(replies, ("b",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'b': {'x': array([-3., -4.])}}
    """

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return each site's own value with the other sign."""
        return -seen.own
