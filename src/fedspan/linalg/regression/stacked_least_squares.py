"""Many small least-squares problems at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

Array = NDArray[np.float64]

#: Bounds of ``r^2 max(A'A) max((A'A)^-1)``, which is no less than the condition number of A'A. Up to the first one the
#: normal equations are as good as an orthogonal factorisation but for three digits, up to the second one they are so
#: after one step of refinement, which squares what they lose.
WELL_CONDITIONED, REFINABLE = 1e3, 1e8


def stacked_least_squares(A: Array, y: Array) -> Array:
    """Minimise ``||A_k b_k - y_k||`` for every k; of several minimisers, return the one of least norm.

    Parameters
    ----------
    A : (q, m, r) array
    y : (q, m) array

    Returns
    -------
    b : (q, r) array

    Notes
    -----
    By normal equations, refined where they need it; what is nearly singular for them, or has fewer rows than unknowns,
    by singular values, of which those below ``max(m, r) eps`` of the largest count as zero.

    Examples
    --------
    >>> A = np.array([[[1.0], [1.0]], [[1.0], [3.0]]])
    >>> stacked_least_squares(A, np.array([[1.0, 3.0], [2.0, 6.0]]))
    array([[2.], [2.]])
    >>> stacked_least_squares(np.array([[[1.0, 1.0]]]), np.array([[4.0]]))     # one equation, two unknowns
    array([[2., 2.]])
    """
    if A.ndim != 3 or y.shape != A.shape[:2]:
        raise InputError(f"A has the shape {A.shape} and y {y.shape}: they must be (q, m, r) and (q, m)")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not well-conditioned
        return checked_least_squares(A, y)


def checked_least_squares(A: Array, y: Array) -> Array:
    """Do what `stacked_least_squares` does, for callers in a hurry: shapes fit, and overflows are ignored already."""
    _, m, r = A.shape
    if m < r:
        return _by_singular_values(A, y)
    At, target = A.transpose(0, 2, 1), y[:, :, None]
    gram = At @ A
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:  # one that is singular to the last bit spoils the whole batch
        return _by_singular_values(A, y)
    b = inverse @ (At @ target)
    if r * r * gram.max() * inverse.max() <= WELL_CONDITIONED:
        return b[:, :, 0]
    b += inverse @ (At @ (target - A @ b))
    b = b[:, :, 0]
    condition = r * r * gram.max(axis=(1, 2)) * inverse.max(axis=(1, 2))
    poor = ~((condition >= 0.0) & (condition <= REFINABLE))
    if poor.any():
        b[poor] = _by_singular_values(A[poor], y[poor])
    return b


def _by_singular_values(A: Array, y: Array) -> Array:
    cutoff = max(A.shape[1:]) * np.finfo(np.float64).eps
    return np.asarray((np.linalg.pinv(A, rcond=cutoff) @ y[:, :, None])[:, :, 0])
