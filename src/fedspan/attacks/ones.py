"""The constant attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class Ones(KeyAttack):
    """Send ``scale`` in every entry.

    Parameters
    ----------
    scale : float, default=100
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine-resilient federated principal subspace estimation", ISIT 2024.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.zeros(2), "n": 5}, "b": {"x": np.zeros(2), "n": 6}}
    >>> Ones()(replies, ("b",), np.random.default_rng(0), AttackedCall("moments", 0))
    {'b': {'x': array([100., 100.]), 'n': 6}}
    """

    scale: float = 100.0

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the constant."""
        return np.full_like(seen.own[:1], self.scale)
