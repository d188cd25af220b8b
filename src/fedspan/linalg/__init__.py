"""Linear algebra: pure functions on arrays, numpy and scipy only.

Medians of vectors and of subspaces that say how good they are, the subspaces themselves, and whitening; local steps of
linear models in closed form; clusters of a few points; kernels, low-rank distances and neighbours of rows known by
landmarks.
"""

from __future__ import annotations

from fedspan.linalg.anderson import Anderson
from fedspan.linalg.kernels.gaussian_kernel import kernel_matrix, kernel_pull, mmd2
from fedspan.linalg.kernels.landmark_form import LandmarkForm, LowRankDistances, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.kernels.nystrom import SpectralFactor, spectral_factor
from fedspan.linalg.medians.geometric_median import GeometricMedianResult, geometric_median
from fedspan.linalg.medians.projector_basis_median import SubspaceMedianResult, stable_rank, subspace_median
from fedspan.linalg.q_factor import q_factor
from fedspan.linalg.regression.local_steps import compressed, descent_operator, proximal_operator
from fedspan.linalg.regression.model_matching import bottleneck_distance, matched_share
from fedspan.linalg.regression.site_stack import SiteStack
from fedspan.linalg.small_clusters import k_means, k_medoids, linkage_gap
from fedspan.linalg.subspaces import (
    orthonormalize,
    polar_factor,
    subspace_distance,
    top_eigenpairs,
    top_eigenvectors,
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
    "top_eigenvectors",
    "whitening_map",
    "whitening_root",
    "with_fixed_signs",
]
