"""Symmetric roots of inverse covariances: what turns a Mahalanobis distance into a length."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def whitening_root(C: Matrix, ridge: float, without: Matrix | None = None) -> Matrix:
    """Return the symmetric root of ``(C + ridge I)^-1``, so that ``||root z||^2 = z' (C + ridge I)^-1 z``.

    Parameters
    ----------
    C : (d, d) array, symmetric, non-negative but for rounding
    ridge : float
        Above 0: directions without variance are divided by its root.
    without : (d, k) array, orthonormal columns, optional
        A subspace that does not count: the root is that of C restricted to what is orthogonal to it, and 0 within it.

    Returns
    -------
    root : (d, d) array

    Examples
    --------
    >>> whitening_root(np.diag([3.0, 0.0]), 1.0)
    array([[0.5, 0. ],
           [0. , 1. ]])
    >>> whitening_root(np.diag([3.0, 0.0]), 1.0, without=np.array([[0.0], [1.0]]))
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    # Householder's Q of a basis is a basis of the whole space, and all but its first columns that of the rest.
    Q = np.eye(len(C)) if without is None else scipy.linalg.qr(without)[0][:, without.shape[1] :]
    variances, axes = scipy.linalg.eigh(Q.T @ C @ Q)
    factor = (Q @ axes) / (np.maximum(variances, 0.0) + ridge) ** 0.25
    root: Matrix = factor @ factor.T
    return root
