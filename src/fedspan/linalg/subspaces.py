"""Subspaces by their orthonormal bases: distances, orthonormalisation, leading eigenspaces.

A rule fixes every sign that mathematics leaves open: the same input gives the same basis everywhere.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf

from fedspan.arrays import Floats
from fedspan.checks import one_of, whole_number
from fedspan.errors import InputError

ORTHONORMAL_TOLERANCE = 1e-5  # float32 bases of any usual size pass
DEFICIENT = 1e-10  # smallest over largest singular value, after scaling the columns to unit length
ASYMMETRIC = 1e-8  # of the largest entry
WELL_CONDITIONED = 0.1  # geometric over arithmetic mean of the eigenvalues of A'A, to the power r


def subspace_distance(U: ArrayLike, V: ArrayLike, norm: Literal["fro", "spectral"] = "fro") -> float:
    """Return ``||(I - U U') V||``, the distance SD_F or SD_2 of two subspaces: the norm of the sines of their angles.

    Computed from the residual of V itself: subspaces that agree to 1e-12 are 1e-12 apart and not 1e-8. It is not
    divided by ``sqrt(r)``: for equal ranks r, SD_F lies between 0 and ``sqrt(r)`` and is symmetric. For unequal ranks
    it measures how far span(V) is from lying inside span(U), and is not symmetric.

    Parameters
    ----------
    U : (n, r) array, orthonormal columns
    V : (n, s) array, orthonormal columns
    norm : "fro" or "spectral"
        Root of the sum of the squared sines, or the largest sine.

    Examples
    --------
    >>> U = np.eye(3)[:, :1]
    >>> angle = 1e-12
    >>> f"{subspace_distance(U, [[np.cos(angle)], [np.sin(angle)], [0.0]]):.3e}"
    '1.000e-12'
    """
    one_of("norm", norm, ("fro", "spectral"))
    U, V = _orthonormal("U", U), _orthonormal("V", V)
    if len(U) != len(V):
        raise InputError(f"U and V must be subspaces of one space, but have {len(U)} and {len(V)} rows")
    residual = V - U @ (U.T @ V)
    residual -= U @ (U.T @ residual)  # removes what a U that is orthonormal only to 1e-7 leaves behind
    return float(np.linalg.norm(residual, "fro" if norm == "fro" else 2))


def orthonormalize(A: ArrayLike, *, complete: bool = False) -> Floats:
    """Return an orthonormal basis Q (n, r) of the span of the columns, from ``A = Q R`` with a positive diagonal of R.

    The positive diagonal makes Q unique. Columns are scaled to unit length first: their lengths do not matter.

    Parameters
    ----------
    A : (n, r) array, r <= n
    complete : bool
        By default, columns that are linearly dependent to a relative tolerance of 1e-10 (smallest over largest
        singular value of the scaled columns) are refused. True: return an orthonormal basis whose span contains
        theirs, in which the directions that A does not give are arbitrary.

    Examples
    --------
    >>> orthonormalize([[3.0, 1.0], [4.0, 0.0]])
    array([[ 0.6,  0.8],
           [ 0.8, -0.6]])
    >>> orthonormalize([[1.0, 1.0], [1.0, 1.0]], complete=True).shape
    (2, 2)
    """
    A = _tall("A", A)
    largest = np.abs(A).max(axis=0)
    A = A / np.where(largest > 0.0, largest, 1.0)  # first, or the squares might overflow
    length = np.linalg.norm(A, axis=0)
    Q, R = scipy.linalg.qr(A / np.where(length > 0.0, length, 1.0), mode="economic", check_finite=False)
    if not complete:
        _refuse_deficient(scipy.linalg.svdvals(R, check_finite=False))
    return np.asarray(Q * np.where(np.diagonal(R) < 0.0, -1.0, 1.0))


def q_factor(A: Floats) -> Floats:
    """Return Q of ``A = Q R`` with a positive diagonal of R: `orthonormalize` for inner loops, without its checks.

    A is float64 and fastest in Fortran order; Q has that order. The Cholesky factor of ``A'A`` is many times faster
    than Householder's QR for small A, but squares the condition of A. Where the columns are far from orthonormal, up to
    a common factor, Householder's QR replaces it. The factor itself shows that: the product of r eigenvalues with the
    mean m is at most ``e m^(r-1)`` times the smallest of them.
    """
    R, not_positive = dpotrf(dsyrk(1.0, A, trans=1), clean=0, overwrite_a=1)
    if not_positive == 0:
        root = math.sqrt(float(np.vdot(A.T, A.T)) / A.shape[1])
        if math.prod([r / root for r in R.diagonal().tolist()]) ** 2 > WELL_CONDITIONED:
            Q: Floats = dtrsm(1.0, R, A, side=1)
            return Q
    return np.asfortranarray(orthonormalize(A, complete=True))


def polar_factor(A: ArrayLike) -> Floats:
    """Return the matrix with orthonormal columns that is nearest to A (n, r): ``A (A'A)^(-1/2)``.

    The columns of A must be linearly independent to a relative tolerance of 1e-10.
    """
    left, values, right = scipy.linalg.svd(_tall("A", A), full_matrices=False, check_finite=False)
    _refuse_deficient(values)
    return np.asarray(left @ right)


def top_eigenpairs(S: ArrayLike, k: int) -> tuple[Floats, Floats]:
    """Return the k largest eigenvalues of a symmetric matrix S (n, n), descending, and their eigenvectors (n, k).

    The eigenvectors are orthonormal; the entry of largest magnitude in each is positive.
    """
    S = np.asarray(S, dtype=np.float64)
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not np.isfinite(S).all():
        raise InputError(f"S must be a square matrix of finite numbers, not of shape {S.shape}")
    whole_number("k", k, 1, len(S), why=", the size of S")
    if np.abs(S - S.T).max() > ASYMMETRIC * np.abs(S).max():
        raise InputError("S must be symmetric, but differs from its transpose: pass (S + S.T) / 2")
    n = len(S)
    if 8 * k < n:  # few eigenpairs are found faster one by one
        values, vectors = scipy.linalg.eigh(S, subset_by_index=(n - k, n - 1), check_finite=False)
    else:
        values, vectors = np.linalg.eigh(S)
    return values[: -k - 1 : -1].copy(), with_fixed_signs(vectors[:, : -k - 1 : -1])


def with_fixed_signs(vectors: Floats) -> Floats:
    """Return the columns with signs such that the first entry of (nearly) largest magnitude in each is positive.

    Entries within 1e-8 of the largest count as largest: rounding does not decide which of two equal entries leads.
    """
    size = np.abs(vectors)
    leader = np.argmax(size >= (1.0 - 1e-8) * size.max(axis=0), axis=0)
    sign = np.where(vectors[leader, np.arange(len(leader))] < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * sign)


def _tall(name: str, A: ArrayLike) -> Floats:
    A = np.asarray(A, dtype=np.float64)
    if A.ndim != 2 or A.size == 0 or A.shape[1] > A.shape[0]:
        raise InputError(f"{name} must be an (n, r) matrix with 1 <= r <= n, not of shape {A.shape}")
    if not np.isfinite(A).all():
        raise InputError(f"{name} must be finite, but some entries are NaN or infinite")
    return A


def _refuse_deficient(singular_values: Floats) -> None:
    small = int(np.sum(singular_values <= DEFICIENT * singular_values[0]))
    if small:
        raise InputError(
            f"A must have linearly independent columns, but {small} of its {len(singular_values)} singular values"
            f" are below {DEFICIENT:g} of the largest"
        )


def _orthonormal(name: str, U: ArrayLike) -> Floats:
    U = _tall(name, U)
    if np.abs(U.T @ U - np.eye(U.shape[1])).max() > ORTHONORMAL_TOLERANCE:
        raise InputError(
            f"{name} must have orthonormal columns (to {ORTHONORMAL_TOLERANCE:g}): call orthonormalize first"
        )
    return U
