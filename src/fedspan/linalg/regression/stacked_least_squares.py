"""Many small least-squares problems at once."""

from __future__ import annotations

import numpy as np

from fedspan.arrays import Floats
from fedspan.errors import InputError

#: Bounds of ``r^2 max(A'A) max((A'A)^-1)``, which is at least the condition number of A'A. Up to the first one, normal
#: equations lose at most three digits to an orthogonal factorisation; up to the second one, they lose no more after one
#: step of refinement.
WELL_CONDITIONED, REFINABLE = 1e3, 1e8


def stacked_least_squares(A: Floats, y: Floats) -> Floats:
    """Return the b (q, r) that minimise ``||A_k b_k - y_k||`` for A (q, m, r) and y (q, m); of several, the shortest.

    By normal equations, refined where they need it. Problems that are nearly singular, or have fewer rows than
    unknowns, are solved by singular values. Those below ``max(m, r) eps`` of the largest count as zero.
    """
    if A.ndim != 3 or y.shape != A.shape[:2]:
        raise InputError(f"A has the shape {A.shape} and y {y.shape}: they must be (q, m, r) and (q, m)")
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that overflow fail the test of their condition
        return checked_least_squares(A, y)


def checked_least_squares(A: Floats, y: Floats) -> Floats:
    """Return the same as `stacked_least_squares`, for callers that checked the shapes and ignore overflows."""
    _, m, r = A.shape
    if m < r:
        return _by_singular_values(A, y)
    At, target = A.transpose(0, 2, 1), y[:, :, None]
    gram = At @ A
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:  # one exactly singular matrix fails the whole batch
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


def _by_singular_values(A: Floats, y: Floats) -> Floats:
    cutoff = max(A.shape[1:]) * np.finfo(np.float64).eps
    return np.asarray((np.linalg.pinv(A, rcond=cutoff) @ y[:, :, None])[:, :, 0])
