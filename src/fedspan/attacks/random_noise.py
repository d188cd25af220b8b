"""The Gaussian attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class RandomNoise(KeyAttack):
    """Send Gaussian noise instead of the reply: every entry is drawn from ``N(0, scale^2)``.

    Each bad site draws its own. Complex entries have a real and an imaginary part of that kind.

    Parameters
    ----------
    scale : float, default=100
        The standard deviation.
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    P. Blanchard, E. M. El Mhamdi, R. Guerraoui and J. Stainer, "Machine learning with adversaries: Byzantine tolerant
    gradient descent", NeurIPS 2017.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.zeros(2)}, "b": {"x": np.zeros(2)}}
    >>> RandomNoise(1)(replies, ("b",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'b': {'x': array([ 0.12573022, -0.13210486])}}
    """

    scale: float = 100.0

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the noise of every site."""
        noise = rng.standard_normal(seen.own.shape).astype(seen.own.dtype)
        if np.iscomplexobj(noise):
            noise += 1j * rng.standard_normal(seen.own.shape)
        return self.scale * noise
