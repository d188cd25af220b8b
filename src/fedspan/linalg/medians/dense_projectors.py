"""The median of very many projectors of few dimensions: as L points of the n (n + 1) / 2 numbers that each has.

Inner products between all sites would be L x L numbers, and solving with them takes L^3 steps: 10,000 sites would need
minutes and gigabytes, where their projectors of 20 columns are 210 numbers each. What is lost is the finest part:
subspaces that agree to better than 1e-8 are told apart by their inner products alone (`fedspan.linalg.medians.projectors`).
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from fedspan.linalg.medians.geometric_median import geometric_median
from fedspan.linalg.medians.median_certificate import Array, rounding
from fedspan.linalg.medians.projector_median import ProjectorMedian

MANY = 300  # sites: with fewer, inner products cost little, and give more digits
SITES = 1024  # whose projectors are square at a time


def are_smaller(L: int, n: int) -> bool:
    """Whether the projectors themselves are fewer numbers than their inner products, of many sites."""
    return L > MANY and n * (n + 1) // 2 <= L


def median_of_dense_projectors(bases: Array, defect: float) -> ProjectorMedian:
    """Solve for the upper halves of the projectors, and certify for what rounding may have done to these.

    Parameters
    ----------
    bases : (L, n, r) array
    defect : float
        Bound of ``||U_l' U_l - I||_F``.

    Returns
    -------
    median : ProjectorMedian

    Notes
    -----
    Time O(L n^4), memory O(L n^2).

    Examples
    --------
    >>> honest, liar = np.eye(4)[:, :2], np.eye(4)[:, 2:]
    >>> median = median_of_dense_projectors(np.array([honest, honest, liar]), 0.0)
    >>> median.weights
    array([0.5, 0.5, 0. ])
    >>> median.distances, bool(median.gap < 1e-13)
    (array([0., 0., 2.]), True)
    """
    L, n, r = bases.shape
    found = geometric_median(_upper_halves(bases))
    # An entry of U U' is off by rounding(r) |u_i| |u_j|, all of them together by that times ||U||_F^2. The median's own
    # projector moves by no more than the farthest of them, and by the rounding of its weights' sum.
    moved = rounding(r + 4) * (r + defect * sqrt(r)) + defect
    summed = rounding(L + 8) * float(found.weights @ found.distances)
    slack = 2.0 * moved + summed + rounding(n * n + 8) * found.distances
    return ProjectorMedian(
        weights=found.weights,
        distances=found.distances,
        low=np.maximum(found.distances - slack, 0.0),
        high=found.distances + slack,
        gap=found.gap + L * (3.0 * moved + summed),
        nearest=int(np.argmin(found.distances)),
    )


def _upper_halves(bases: Array) -> Array:
    """Rows with the inner products of the projectors: the diagonal, and sqrt 2 times what is above it."""
    L, n, _ = bases.shape
    rows, columns = np.triu_indices(n)
    scale = np.where(rows == columns, 1.0, sqrt(2.0))
    halves = np.empty((L, len(rows)))
    for start in range(0, L, SITES):
        U = bases[start : start + SITES]
        halves[start : start + SITES] = (U @ U.transpose(0, 2, 1))[:, rows, columns] * scale
    return halves
