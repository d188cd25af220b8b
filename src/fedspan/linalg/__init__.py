"""Linear algebra: pure functions on arrays, numpy and scipy only.

Medians of vectors and of subspaces with certificates, the subspaces themselves, and whitening; local steps of linear
models in closed form. Clusters of a few points; kernels, low-rank distances and neighbours of rows known by landmarks.
"""

from __future__ import annotations

from fedspan.linalg.anderson import Anderson
from fedspan.linalg.kernels.gaussian_kernel import SpectralFactor, kernel_matrix, kernel_pull, mmd2, spectral_factor
from fedspan.linalg.kernels.landmark_form import LandmarkForm, LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.medians.projector_median import SubspaceMedianResult, stable_rank, subspace_median
from fedspan.linalg.medians.vector_median import GeometricMedianResult, geometric_median
from fedspan.linalg.regression.local_steps import SiteStack, compressed, descent_operator, proximal_operator
from fedspan.linalg.small_clusters import bottleneck_distance, k_means, k_medoids, linkage_gap, matched_share
from fedspan.linalg.subspaces import (
    orthonormalize,
    polar_factor,
    q_factor,
    subspace_distance,
    top_eigenpairs,
    with_fixed_signs,
)
from fedspan.linalg.whitening import whitening_map, whitening_root

__all__ = [
    "Anderson",
    "GeometricMedianResult",
    "LandmarkForm",
    "LowRankDistances",
    "SiteStack",
    "SpectralFactor",
    "SubspaceMedianResult",
    "bottleneck_distance",
    "compressed",
    "descent_operator",
    "geometric_median",
    "k_means",
    "k_medoids",
    "kernel_matrix",
    "kernel_pull",
    "landmark_form",
    "linkage_gap",
    "matched_share",
    "mmd2",
    "nearest",
    "orthonormalize",
    "polar_factor",
    "proximal_operator",
    "q_factor",
    "spectral_factor",
    "stable_rank",
    "subspace_distance",
    "subspace_median",
    "top_eigenpairs",
    "whitening_map",
    "whitening_root",
    "with_fixed_signs",
]
