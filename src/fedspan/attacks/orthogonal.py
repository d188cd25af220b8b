"""The attack on subspaces: a basis of directions that no honest site has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.key_attack import Array, KeyAttack, SeenReplies


@dataclass(frozen=True)
class Orthogonal(KeyAttack):
    """Send ``scale * Q``, where Q is random with orthonormal columns, orthogonal to what the honest sites agree on.

    A matrix (n, r) with n > r counts as a basis. What all honest replies agree on is then the span of their leading r
    left singular vectors side by side. For orthonormal bases that is the leading eigenspace of the mean of their
    projectors. Anything else counts as a vector, also a square matrix, and what they agree on is its mean.

    Where the complement has no room for Q (n < 2 r), only the leading n - r directions are avoided. So a single number
    becomes plus or minus `scale` at random. All malicious sites send the same.

    A. P. Singh and N. Vaswani, "Byzantine-resilient federated principal subspace estimation", ISIT 2024.

    Parameters
    ----------
    scale : float, default=3
        The length of each column. Against bases that are orthonormalised again it makes no difference; a power method
        suffers more from a larger one.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"U": np.eye(6, 2)}, "b": {"U": np.eye(6, 2)}}
    >>> U = Orthogonal(3)(replies, ("b",), np.random.default_rng(0), AttackedCall("pca.basis", 0))["b"]["U"]
    >>> np.abs(np.eye(6, 2).T @ U).max() < 1e-12, np.allclose(U.T @ U, 9 * np.eye(2))
    (np.True_, True)
    """

    scale: float = 3.0

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
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
        sign = R.diagonal() / np.abs(R.diagonal())  # QR leaves the sign open
        basis: Array = (Q * sign)[:, directions.shape[1] :]
        return self.scale * basis.reshape(1, *shape)
