"""Attacks that ignore the honest replies: constants, a chessboard, noise, and values that are not finite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.key_attack import Array, KeyAttack, SeenReplies
from fedspan.checks import one_of


@dataclass(frozen=True)
class Ones(KeyAttack):
    """Send ``scale`` in every entry.

    A. P. Singh and N. Vaswani, "Byzantine-resilient federated principal subspace estimation", ISIT 2024.
    """

    scale: float = 100.0

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the constant."""
        return np.full_like(seen.own[:1], self.scale)


@dataclass(frozen=True)
class Alternating(KeyAttack):
    """Send a chessboard: entry ``(i, j, ...)`` is ``scale * (-1)**(i + j + ...)``.

    All malicious sites send the same. A matrix of it has rank one; a single number is `scale`.

    Also by Singh and Vaswani, ISIT 2024.
    """

    scale: float = 10.0

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the chessboard."""
        places = np.indices(seen.own.shape[1:]).sum(axis=0)
        board: Array = np.asarray(self.scale * (1 - 2 * (places % 2)), dtype=seen.own.dtype)
        return board[None]


@dataclass(frozen=True)
class RandomNoise(KeyAttack):
    """Send Gaussian noise: every entry is drawn from ``N(0, scale^2)``, separately for each malicious site.

    Complex entries have a real and an imaginary part of that kind.

    P. Blanchard, E. M. El Mhamdi, R. Guerraoui and J. Stainer, "Machine learning with adversaries: Byzantine tolerant
    gradient descent", NeurIPS 2017.
    """

    scale: float = 100.0

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the noise of every site."""
        noise = rng.standard_normal(seen.own.shape).astype(seen.own.dtype)
        if np.iscomplexobj(noise):
            noise += 1j * rng.standard_normal(seen.own.shape)
        return self.scale * noise


@dataclass(frozen=True)
class NonFinite(KeyAttack):
    """Send a `value` of "nan" or "inf" in every entry: one of them makes an average without checks meaningless."""

    value: str = "nan"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("value", self.value, ("nan", "inf"))

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the value that is not finite."""
        return np.full_like(seen.own[:1], float(self.value))
