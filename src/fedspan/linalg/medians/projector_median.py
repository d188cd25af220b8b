"""The median of L projectors, solved and certified from their inner products alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg.medians.median_certificate import UNIT_ROUNDOFF, Array, cluster_gap_bound, gap_bound
from fedspan.linalg.medians.median_solver import fermat_point, isometric_coordinates
from fedspan.linalg.medians.projectors import Geometry

GOOD_GAP = 5e-11  # of the objective
SHARP = 1e-8  # relative error of a distance


@dataclass(frozen=True)
class ProjectorMedian:
    """The median ``sum_l weights[l] P_l`` and what is known of it.

    Attributes
    ----------
    weights, distances : (L,) arrays
    low, high : (L,) arrays
        Bounds of the distances, rounding errors included.
    gap : float
        Bound on ``f - min f``, the weights of all sites being 1.
    nearest : int
        The site nearest to the median.
    """

    weights: Array
    distances: Array
    low: Array
    high: Array
    gap: float
    nearest: int

    def is_sharp(self) -> bool:
        """Whether the gap is small and every distance known well: if not, a finer geometry may help."""
        known = self.high - self.low <= SHARP * self.high
        return bool(self.gap <= GOOD_GAP * self.distances.sum() and known.all())


def median_of_projectors(geometry: Geometry) -> ProjectorMedian:
    """Solve, then certify with distances whose errors are bounded by those of the geometry."""
    gram, L = geometry.gram, len(geometry.gram)
    gram_error = geometry.error + 4.0 * (L + 4) * UNIT_ROUNDOFF * np.abs(gram)
    ones = np.ones(L)
    solution = fermat_point(isometric_coordinates(gram), ones, geometry.tolerance)
    at_site = bool(solution.coincide.any())
    share = np.eye(L)[solution.nearest] if at_site else solution.pulls / solution.pulls.sum()
    weights = solution.coincide / solution.coincide.sum() if at_site else share

    def squared_norms(coefficients: Array) -> tuple[Array, Array]:
        """Of the combinations of projectors in the rows, whose coefficients sum to 0; with bounds of the errors."""
        size = np.abs(coefficients)
        return (
            np.einsum("ij,ij->i", coefficients @ gram, coefficients),
            np.einsum("ij,ij->i", size @ gram_error, size),
        )

    square, error = squared_norms(np.eye(L) - share)
    low, high = np.sqrt(np.maximum(square - error, 0.0)), np.sqrt(np.maximum(square + error, 0.0))

    def pull_of(sites: NDArray[np.bool_]) -> float:
        pulls = np.where(sites, solution.pulls, 0.0)
        pull, pull_error = squared_norms((pulls - pulls.sum() * share)[None, :])
        return float(np.sqrt(max(0.0, pull[0] + pull_error[0])))

    dual = solution.pulls * low * (1.0 - 1e-15), solution.pulls * high * (1.0 + 1e-15)
    residual = pull_of(~solution.coincide)
    gap = gap_bound(ones, (low, high), dual, residual, solution.coincide, float(weights @ high) if at_site else 0.0)
    if not at_site:
        cluster = _inner_cluster(high)
        gap = min(gap, cluster_gap_bound(ones, high, dual, residual, cluster, pull_of(~cluster)))
    return ProjectorMedian(weights, np.sqrt(np.maximum(square, 0.0)), low, high, gap, solution.nearest)


def _inner_cluster(distances: Array) -> NDArray[np.bool_]:
    """Mark the sites before the largest jump in the distances to the median."""
    ordered = np.sort(distances)
    jump = int(np.argmax(ordered[1:] / ordered[:-1]))
    return np.asarray(distances <= ordered[jump])
