"""The chessboard attack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class Alternating(KeyAttack):
    """Send a chessboard: entry ``(i, j, ...)`` is ``scale * (-1)**(i + j + ...)``.

    All bad sites send the same. A matrix of it has rank one; a single number is `scale`.

    Parameters
    ----------
    scale : float, default=10
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine-resilient federated principal subspace estimation", ISIT 2024.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"U": np.zeros((2, 2))}, "b": {"U": np.zeros((2, 2))}}
    >>> Alternating()(replies, ("b",), np.random.default_rng(0), AttackedCall("local_basis", 0))
    {'b': {'U': array([[ 10., -10.], [-10., 10.]])}}
    """

    scale: float = 10.0

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the chessboard."""
        board = np.full(seen.own.shape[1:], self.scale, dtype=seen.own.dtype)
        for axis in range(board.ndim):
            sign = 1 - 2 * (np.arange(board.shape[axis]) % 2)
            board *= np.expand_dims(sign, tuple(other for other in range(board.ndim) if other != axis))
        return board[None]
