"""The Q of QR, fast enough for the inner loop of an iteration on orthonormal matrices."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf

from fedspan.linalg.subspaces import Array, orthonormalize

WELL_CONDITIONED = 0.1  # geometric over arithmetic mean of the eigenvalues of A'A, to the power r


def q_factor(A: Array) -> Array:
    """Return Q of ``A = Q R`` with a positive diagonal of R: `orthonormalize` for inner loops, without its checks.

    From the Cholesky factor of ``A'A``, which is many times faster for small A. That squares the condition of A: where
    the columns are far from orthonormal, up to a common factor, Householder's way is taken. The factor tells: the
    product of r eigenvalues with the mean m is at most ``e m^(r-1)`` times the smallest of them.

    Parameters
    ----------
    A : (n, r) array, float64, r <= n
        Fastest in Fortran's order.

    Returns
    -------
    Q : (n, r) array, in Fortran's order

    Examples
    --------
    >>> q_factor(np.array([[3.0, 1.0], [4.0, 0.0]]))
    array([[ 0.6,  0.8],
           [ 0.8, -0.6]])
    """
    R, not_positive = dpotrf(dsyrk(1.0, A, trans=1), clean=0, overwrite_a=1)
    if not_positive == 0:
        root = math.sqrt(float(np.vdot(A.T, A.T)) / A.shape[1])
        if math.prod([r / root for r in R.diagonal().tolist()]) ** 2 > WELL_CONDITIONED:
            Q: Array = dtrsm(1.0, R, A, side=1)
            return Q
    return np.asfortranarray(orthonormalize(A, complete=True))
