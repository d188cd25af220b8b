"""Roots of inverse covariances: they turn a Mahalanobis distance into a length, and rows into white ones."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fedspan.arrays import Matrix
from fedspan.linalg.subspaces import with_fixed_signs

_FLAT = 1e-9  # relative: directions of less variance count as combinations of the others


def whitening_root(C: Matrix, ridge: float, without: Matrix | None = None) -> Matrix:
    """Return the symmetric root of ``(C + ridge I)^-1``, so that ``||root z||^2 = z' (C + ridge I)^-1 z``.

    Parameters
    ----------
    C : (d, d) array, symmetric, non-negative but for rounding
    ridge : float
        Above 0: directions without variance are divided by its root.
    without : (d, k) array, orthonormal columns, optional
        A subspace to ignore: the result is the root of C restricted to its orthogonal complement, and 0 within it.
    """
    # Householder's Q of a basis spans the whole space; all but its first columns span the orthogonal complement.
    Q = np.eye(len(C)) if without is None else scipy.linalg.qr(without)[0][:, without.shape[1] :]
    variances, axes = scipy.linalg.eigh(Q.T @ C @ Q)
    factor = (Q @ axes) / (np.maximum(variances, 0.0) + ridge) ** 0.25
    root: Matrix = factor @ factor.T
    return root


def whitening_map(C: Matrix, floor: float = 0.0) -> Matrix:
    """Return W (d, r) that makes the covariance C (d, d) of rows the unit matrix: ``W' C W = I``.

    Variances are raised to the share `floor` of their mean. With 0, directions without variance are left out: r is the
    rank of C. Signs are fixed, so that the last bits of C decide none.
    """
    tiny = np.finfo(np.float64).tiny
    variances, axes = scipy.linalg.eigh(C)
    if floor > 0.0:
        variances = np.maximum(variances, floor * max(float(variances.mean()), tiny))
    seen = variances > _FLAT * max(float(variances[-1]), tiny)
    W: Matrix = with_fixed_signs(axes[:, seen]) / np.sqrt(variances[seen])
    return W
