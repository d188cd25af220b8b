"""The attack on subspaces: a basis of directions that nobody honest has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen


@dataclass(frozen=True)
class Orthogonal(KeyAttack):
    """Send ``scale * Q``, where Q is random with orthonormal columns, orthogonal to what the honest sites agree on.

    A matrix (n, r) with n > r is taken for a basis. What all honest sites, bad ones too, agree on is then the span of
    the leading r left singular vectors of their replies side by side: for orthonormal bases, the leading eigenspace of
    the mean of their projectors. Anything else is taken for a vector, also a square matrix, and what they agree on is
    its mean.

    The complement must have room for Q. Where it has not (n < 2 r), only the leading n - r directions are avoided.
    So a single number, which nothing is orthogonal to, becomes plus or minus `scale` at random.

    All bad sites send the same. Time O(n (L r)^2) for a basis and O(n L) for a vector.

    Parameters
    ----------
    scale : float, default=3
        The length of each column. Against bases that are orthonormalised again it makes no difference; a power method
        suffers more from a larger one.
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine-resilient federated principal subspace estimation", ISIT 2024.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"U": np.eye(6, 2)}, "b": {"U": np.eye(6, 2)}}
    >>> lie = Orthogonal(3)(replies, ("b",), np.random.default_rng(0), AttackedCall("local_basis", 0))["b"]["U"]
    >>> np.abs(np.eye(6, 2).T @ lie).max() < 1e-12, np.allclose(lie.T @ lie, 9 * np.eye(2))
    (np.True_, True)
    """

    scale: float = 3.0

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the scaled basis, or the scaled direction."""
        shape = seen.own.shape[1:]
        honest = np.where(np.isfinite(seen.honest), seen.honest, 0.0)
        if len(shape) == 2 and shape[0] > shape[1]:
            n, r = shape
            agreed = honest.transpose(1, 0, 2).reshape(n, -1)
        else:
            agreed = honest.mean(axis=0).reshape(-1, 1)
            n, r = agreed.shape
        if n == 0:
            return seen.own
        directions = np.linalg.svd(agreed, full_matrices=False)[0][:, : min(r, n - r)]
        draw = rng.standard_normal((n, r)).astype(agreed.dtype)
        if np.iscomplexobj(agreed):
            draw += 1j * rng.standard_normal((n, r))
        Q, R = np.linalg.qr(np.hstack([directions, draw]))
        sign = R.diagonal() / np.abs(R.diagonal())  # which QR leaves to chance, or to its authors
        basis: Array = (Q * sign)[:, directions.shape[1] :]
        return self.scale * basis.reshape(1, *shape)
