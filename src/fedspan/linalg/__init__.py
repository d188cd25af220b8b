"""Linear algebra: pure functions on arrays, numpy and scipy only.

Medians of vectors and of subspaces that say how good they are, the subspaces themselves, and whitening.
"""

from __future__ import annotations

from fedspan.linalg.geometric_median import GeometricMedianResult, geometric_median
from fedspan.linalg.q_factor import q_factor
from fedspan.linalg.subspace_median import SubspaceMedianResult, stable_rank, subspace_median
from fedspan.linalg.subspaces import (
    orthonormalize,
    polar_factor,
    subspace_distance,
    top_eigenpairs,
    top_eigenvectors,
    with_fixed_signs,
)
from fedspan.linalg.whitening import whitening_root

__all__ = [
    "GeometricMedianResult",
    "SubspaceMedianResult",
    "geometric_median",
    "orthonormalize",
    "polar_factor",
    "q_factor",
    "stable_rank",
    "subspace_distance",
    "subspace_median",
    "top_eigenpairs",
    "top_eigenvectors",
    "whitening_root",
    "with_fixed_signs",
]
