"""Federated orthogonal iteration: the leading left singular space of a sum of outer products spread over sites.

Algorithm 3 of L. Su, J. Xu and P. Yang, "Global convergence of federated learning for mixed regression", NeurIPS 2022:
``Y = sum_i sum_j a_ij b_ij'``, whose terms never leave their sites. Per iteration and site, each way: d k numbers,
twice that where Y is not symmetric. The power methods of PCA are the case ``a_ij = b_ij = x_ij``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedspan.arrays import Matrix
from fedspan.federation import Federation
from fedspan.linalg import orthonormalize, top_eigenpairs

#: ``product(fed, Q)``: request the sites' parts of ``Y Q``, and return it with the weight of each site in it.
Product = Callable[[Federation, Matrix], tuple[Matrix, dict[str, float]]]


def orthogonal_iteration(
    fed: Federation,
    *,
    product: Product,
    start: Matrix,
    iterations: int,
    transposed: Product | None = None,
    rank: int | None = None,
) -> tuple[Matrix, dict[str, float]]:
    """Return an orthonormal basis (d, k) of the leading left singular space, and each site's weight in it.

    Parameters
    ----------
    product, transposed : functions ``(fed, Q) -> (Y Q, weights)``, ``(fed, Q) -> (Y' Q, weights)``
        A symmetric Y needs the first alone: then an iteration is one call instead of two.
    start : array (d, k), orthonormal, or (d, A, k) for A matrices at once
    iterations : int, at least 1
    rank : int, optional
        Return this number of columns only, those of the largest eigenvalues of a symmetric Y within the last basis.
        Extra columns speed the iteration up, and leave room for large negative eigenvalues.
    """
    Q = before = W = start
    weights: dict[str, float] = {}
    for _ in fed.rounds(iterations):
        if transposed is not None:  # the paper omits this QR; with it nothing can grow or vanish
            Q = _each(_basis, transposed(fed, Q)[0])
        before = Q
        W, weights = product(fed, Q)
        Q = _each(_basis, W)
    if rank is None or rank == start.shape[-1]:
        return Q, weights
    return _each(lambda B, V: _leading(B, V, rank), before, W), weights


def random_basis(rng: np.random.Generator, n_columns: int, rank: int) -> Matrix:
    """Return a random orthonormal basis (d, rank)."""
    return orthonormalize(rng.standard_normal((n_columns, rank)))


def _basis(W: Matrix) -> Matrix:
    return orthonormalize(W, complete=True)


def _leading(Q: Matrix, W: Matrix, rank: int) -> Matrix:
    """Return the basis of ``W = Y Q`` that belongs to the `rank` largest eigenvalues of Y within the span of Q."""
    inner = Q.T @ W
    return _basis(W @ top_eigenpairs((inner + inner.T) / 2.0, rank)[1])


def _each(function: Callable[..., Matrix], *stacks: Matrix) -> Matrix:
    """Apply a function of matrices (d, k) to them or, one by one, to stacks of them (d, A, k)."""
    if stacks[0].ndim == 2:
        return function(*stacks)
    return np.stack([function(*(stack[:, a] for stack in stacks)) for a in range(stacks[0].shape[1])], axis=1)
