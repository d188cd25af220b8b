"""The subspace median: the geometric median of projectors, of which only very small ones are formed.

Algorithm 1 ("Subspace Median") of A. P. Singh and N. Vaswani, "Byzantine-Resilient Federated Principal Subspace
Estimation", IEEE ISIT 2024. Sites send orthonormal bases U_l; the median P_gm of the projectors ``U_l U_l'`` is a
convex combination ``sum_l a_l U_l U_l'``, so that finding it means finding L numbers. The paper returns the basis of
the site nearest to P_gm (``output="node"``); the leading eigenspace of P_gm, the default here, averages over the sites.
Near one half of malicious sites a mean of the sites near the smallest ball that holds a majority is better
(``output="trimmed"``, see `majority_ball`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from fedspan.arrays import Floats
from fedspan.checks import one_of
from fedspan.errors import InputError
from fedspan.linalg.medians.majority_ball import Blocks, Rows, near_majority_of_blocks, resilience, two_groups
from fedspan.linalg.medians.projectors import median_of, orthonormality_defect, weighted_rows
from fedspan.linalg.subspaces import ORTHONORMAL_TOLERANCE, top_eigenpairs, with_fixed_signs

Output = Literal["eigenspace", "node", "trimmed"]

TRIM = 1.5  # times the radius of the smallest ball that holds a majority: sites farther from its centre are left out
_TRIM_OF_TWO = 1.2  # where the sites form two groups: the other one must not come in
_MANY = 300  # sites: of more, some 200 at equal steps are centres of balls for the table, and searched for two groups
_SOME = 200


@dataclass(frozen=True)
class SubspaceMedianResult:
    """The result of `subspace_median`.

    Attributes
    ----------
    basis : (n, r) array
        Orthonormal.
    weights : (L,) array
        Non-negative, sum to 1: ``P_gm = sum_l weights[l] U_l U_l'``.
    distances : (L,) array
        ``||U_l U_l' - P_gm||_F``.
    gap : float
        Proven bound on ``f(P_gm) - min f`` where ``f(P) = sum_l ||U_l U_l' - P||_F``, rounding errors included.
    spectrum : (min(n, L r, 2 r),) array
        Largest eigenvalues of P_gm ("trimmed": of the mean), descending, in [0, 1]. They sum to r at most, so that no
        more than 2 r of them can reach 1/2. See `stable_rank`.
    kept : (k,) array of int
        The sites that `basis` was made from.
    near : (L,) array of bool
        The sites within 1.5 radii of the smallest ball round a site that holds a majority (1.2 radii where the sites
        form two groups).
    resilience : structured array
        How far malicious sites can have moved the basis, ``malicious``, ``radius`` and ``bound``. Let no more than
        these be malicious. If the others lie within two radii of one of them, `basis` is within the bound of that one,
        in the distance of projectors. (Of more than 300 sites: if that one is among some 200 at equal steps.)
    second : (L,) array of bool, or None
        The smaller one of two groups of nearly equal size, if the sites form them (of more than 300 sites, some).
    """

    basis: Floats
    weights: Floats
    distances: Floats
    gap: float
    spectrum: Floats
    kept: NDArray[np.intp]
    near: NDArray[np.bool_]
    resilience: NDArray[np.void]
    second: NDArray[np.bool_] | None


def subspace_median(bases: ArrayLike, *, output: Output = "eigenspace") -> SubspaceMedianResult:
    """Find the geometric median of L subspaces of equal dimension, in the Frobenius distance of their projectors.

    With a part ``a < 1/2`` of arbitrary subspaces, take any ball that holds the others. P_gm is within ``2 (1 - a) / (1
    - 2 a)`` times its radius from its centre. Near one half that is little only if these agree. With two sites every
    point between them is a median: P_gm is their mean, and the node nearest to it is the first.

    Parameters
    ----------
    bases : (L, n, r) array
        Orthonormal to 1e-5 (float32 will do); they are polished to full precision. Only the spans matter.
    output : "eigenspace", "node" or "trimmed"
        What `basis` spans: the r leading eigenvectors of P_gm; the subspace of the site nearest to P_gm (the paper's
        choice; the first one of several equally near); or the r leading eigenvectors of the plain mean of the
        projectors that are kept: those near the smallest ball round a site that holds a majority (see `near` of the
        result).

    Notes
    -----
    Time O(n (L r)^2 + L^3), once, and twice when sites nearly agree. Memory beyond the input: a few matrices of at most
    L r x min(n, L r) and blocks of 256 rows; below 100 MB for (L, n, r) = (50, 10000, 20), whose projectors would take
    40 GB. More than 300 sites of few columns (``n (n + 1) / 2 <= L``): time O(L n^4 + L^2 n^2), memory O(L n^2).

    Examples
    --------
    >>> honest, malicious = np.eye(4)[:, :2], np.eye(4)[:, 2:]
    >>> result = subspace_median([honest, honest, malicious])
    >>> result.weights
    array([0.5, 0.5, 0. ])
    >>> result.distances
    array([0., 0., 2.])
    """
    one_of("output", output, get_args(Output))
    U, defect = _validated(bases)
    median, inner, distances = median_of(U, defect)
    L, _, r = U.shape
    centres = np.arange(0, L, 1 if L <= _MANY else -(-L // _SOME))
    second = _second_group(L, distances, centres)
    near = near_majority_of_blocks(distances, L, TRIM if second is None else _TRIM_OF_TWO)
    weights = median.weights
    kept = np.flatnonzero(weights)
    if output == "trimmed":
        kept, weights = np.flatnonzero(near), near / near.sum()
    values, basis = _leading(U, inner, weights)
    if output == "node":
        kept = np.flatnonzero(median.low <= median.high.min())[:1]
        basis = U[kept[0]].copy()
    overlap = np.array([np.sum((one.T @ basis) ** 2) for one in U])
    table = resilience(distances, np.sqrt(np.maximum(2.0 * (r - overlap), 0.0)), centres)
    return SubspaceMedianResult(basis, median.weights, median.distances, median.gap, values, kept, near, table, second)


def stable_rank(spectrum: ArrayLike, threshold: float = 0.5) -> int:
    """Count the directions that most sites agree on: eigenvalues of P_gm of at least `threshold`.

    Sites may send more columns than the rank in question. A direction of one site alone has no eigenvalue above that
    site's weight, a shared one has nearly 1. The `spectrum` of a `SubspaceMedianResult` holds every eigenvalue that
    reaches 0.5, but not every smaller one: the threshold is at least that.
    """
    if not 0.5 <= threshold <= 1.0:
        raise InputError(f"threshold={threshold} must be between 0.5 and 1: smaller eigenvalues are not all known")
    return int(np.sum(np.asarray(spectrum) >= threshold))


def _validated(bases: ArrayLike) -> tuple[Floats, float]:
    """Return the bases in float64, orthonormal to rounding, and a bound of their remaining defect."""
    try:
        U = np.asarray(bases)
    except ValueError as ragged:
        raise InputError("bases must be an (L, n, r) array, but not all of them are of one shape") from ragged
    if U.ndim != 3 or U.size == 0 or U.shape[2] > U.shape[1]:
        raise InputError(f"bases must be an (L, n, r) array with L >= 1 and 1 <= r <= n, not of shape {U.shape}")
    if U.dtype.kind not in "fiu":
        raise InputError(f"bases must be real numbers, not of type {U.dtype}")
    U = U.astype(np.float64, copy=False)
    if not np.isfinite(U).all():
        raise InputError("bases must be finite, but some entries are NaN or infinite")
    inner, defect, error = orthonormality_defect(U)
    if defect.max() > ORTHONORMAL_TOLERANCE * U.shape[2]:
        site = int(np.argmax(defect))
        raise InputError(
            f"bases[{site}] must have orthonormal columns (to {ORTHONORMAL_TOLERANCE:g}): orthonormalize it"
        )
    loose = np.flatnonzero(defect > 1e-13)
    if len(loose):
        U = U.copy()
        for site in loose.tolist():
            U[site] = _polished(U[site], inner[site])
        _, defect, error = orthonormality_defect(U)
    return U, float(defect.max()) + error


def _second_group(count: int, distances: Blocks, centres: Rows) -> NDArray[np.bool_] | None:
    """Return the smaller one of two groups of the sites `centres`."""
    found = two_groups(np.concatenate([high[:, centres] for _, _, high in distances(centres)]))
    if found is None:
        return None
    second = np.zeros(count, dtype=bool)
    second[centres] = found
    return second


def _leading(U: Floats, inner: Floats | None, weights: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and the r leading eigenvectors of ``sum_l a_l U_l U_l' = B B'``, ``B = [sqrt(a_l) U_l]``.

    From ``B'B`` or, where that is the larger one, from ``B B'``. The r-th eigenvalue is at least the largest a_l, hence
    at least 1/L: taking the eigenvectors from B'B costs no digits.
    """
    L, n, r = U.shape
    count = min(n, L * r, 2 * r)
    root = np.repeat(np.sqrt(weights), r)
    if inner is not None:
        values, vectors = top_eigenpairs(root[:, None] * inner * root, count)
        basis = weighted_rows(U, root[:, None] * vectors[:, :r] / np.sqrt(values[:r]))
    else:
        B = U.transpose(1, 0, 2).reshape(n, L * r) * root
        values, vectors = top_eigenpairs(B @ B.T, count)
        basis = vectors[:, :r]
    return np.clip(values, 0.0, 1.0), with_fixed_signs(_polished(basis, basis.T @ basis))


def _polished(U: Floats, inner: Floats) -> Floats:
    """Return an orthonormal basis of the same span from a nearly orthonormal one: ``U R^-1`` with ``R'R = U'U``."""
    R = scipy.linalg.cholesky(inner, check_finite=False)
    return np.asarray(U @ scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False))
