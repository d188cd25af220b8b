"""The reverse-gradient attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class ScaledReverse(KeyAttack):
    """Send ``-factor`` times the mean of all honest replies.

    The mean is over all L sites: also over what the bad ones would honestly have sent. With b bad sites the mean that
    the coordinator sees is about ``(L - b - b * factor) / L`` times the honest one: it changes its sign only
    where ``b * (1 + factor) > L``.

    Parameters
    ----------
    factor : float, default=10
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.array([1.0, 2.0])}, "b": {"x": np.array([3.0, 4.0])}}
    >>> ScaledReverse(10)(replies, ("b",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'b': {'x': array([-20., -30.])}}
    """

    factor: float = 10.0

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the reversed mean."""
        mean: Array = seen.honest.mean(axis=0, keepdims=True)
        return -self.factor * mean
