"""An index of the published algorithms: every protocol that can be run by ``fed.run(protocol, ...)``.

>>> import numpy as np, fedspan as fs
>>> fed = fs.federate(np.eye(6), sites=[0, 0, 1, 1, 2, 2])
>>> axes, weights = fed.run(fs.protocols.covariance_pca, rank=2)
>>> axes.components.shape
(2, 6)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

#: Every protocol and the module that defines it.
INDEX = {
    # Statistics of columns.
    "moments": "sums.moments",
    "quantiles": "sums.quantiles",
    "category_union": "tables.parts.category_union",
    "column_kinds": "tables.parts.column_kinds",
    # Descriptions of tables.
    "correlation": "statistics.describe.pair_statistics",
    "covariance": "statistics.describe.pair_statistics",
    "crosstab": "statistics.describe.cross_counts",
    "describe": "statistics.describe.describe_table",
    "histogram": "statistics.describe.histograms",
    "overview": "statistics.describe.table_overview",
    "site_differences": "statistics.describe.site_differences",
    # Principal components.
    "covariance_pca": "pca.covariance",
    "fedpe": "pca.fedpe",
    "fedpg": "pca.fedpg",
    "median_of_means": "pca.median_of_means",
    "power": "pca.power_method",
    "resilient_covariance": "pca.resilient_covariance",
    "resilient_power": "pca.resilient_power",
    "stack_pca": "pca.stack",
    "subspace_iteration": "pca.subspace_iteration",
    "subspace_median": "pca.subspace_median",
    # Anomaly detection.
    "autoencoder": "anomaly.autoencoder_detector",
    "bigan": "anomaly.bigan_detector",
    "local_detectors": "anomaly.local_pca_detector",
    # Few-shot learning.
    "altgdmin": "few_shot.altgdmin",
    "byz_altgdmin": "few_shot.byz_altgdmin",
    # Mixed regression.
    "fedx": "mixed_regression.fedx",
    "ifca": "mixed_regression.baselines",
    "logistic_fedx": "mixed_regression.logistic_fedx",
    "moment_descent": "mixed_regression.moment_descent",
    "moment_descent_paper": "mixed_regression.moment_descent_paper",
    "one_shot_clustering": "mixed_regression.baselines",
    "oracle": "mixed_regression.baselines",
    "random_start": "mixed_regression.random_start",
    "spectral_start": "mixed_regression.spectral_start",
    "vanilla_fedavg": "mixed_regression.baselines",
    # Regression with standard errors.
    "generalized_linear_model": "statistics.regression.generalized_linear_model",
    "least_squares": "statistics.regression.least_squares",
    "noisy_least_squares": "statistics.regression.noisy_least_squares",
    "residual_bins": "statistics.regression.residual_bins",
    # Survival, and adjustment for sites.
    "cox_model": "statistics.survival.cox_model",
    "event_counts": "statistics.survival.event_counts",
    "log_rank": "statistics.survival.log_rank_test",
    # Effects of batches.
    "harmony": "atlases.harmony_by_sums",
    "site_adjustment": "statistics.combat.site_adjustment",
    # Landmarks, clusters and maps.
    "feddl": "landmarks.feddl",
    "federated_k_means": "clustering.federated_k_means",
    "landmark_distances": "landmarks.landmark_distances",
    "one_shot_map": "maps.by_centers",
    "private_feddl": "landmarks.private_feddl",
    "private_map": "maps.by_sums",
}

__all__ = sorted(INDEX)  # noqa: PLE0605


def __getattr__(name: str) -> Callable[..., Any]:
    if name in INDEX:
        found: Callable[..., Any] = getattr(importlib.import_module(f"fedspan.{INDEX[name]}"), name)
        return found
    raise AttributeError(f"module 'fedspan.protocols' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *INDEX])
