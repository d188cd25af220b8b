"""fedspan: the shared structure of data that cannot be pooled.

>>> import numpy as np, fedspan as fs
>>> rng = np.random.default_rng(0)
>>> fed = fs.federate(rng.normal(size=(60, 5)), sites=np.arange(60) % 3)
>>> fs.FedPCA(n_components=2).fit(fed).components_.shape
(2, 5)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedspan.federation import FaultPlan, Federation, Policy, Replies, RunRecord, SecureSum, Site, step, transform

if TYPE_CHECKING:
    from fedspan.anomaly.anomaly_detector import FedAnomalyDetector
    from fedspan.anomaly.autoencoder_detector import FedAutoencoderDetector
    from fedspan.anomaly.bigan_detector import FedBiGANDetector
    from fedspan.anomaly.centers_detector import FedCentersDetector
    from fedspan.anomaly.drift import drift
    from fedspan.anomaly.drift_monitor import DriftMonitor
    from fedspan.anomaly.isolation_detector import FedIsolationDetector
    from fedspan.anomaly.local_pca_detector import LocalPCADetector
    from fedspan.anomaly.parts.gateway_sums import gateway_site
    from fedspan.anomaly.pca_detector import FedPCADetector
    from fedspan.atlases.harmony import FedHarmony
    from fedspan.atlases.whole_way import atlas
    from fedspan.clustering.k_means import FedKMeans
    from fedspan.clustering.spectral import FedSpectralClustering
    from fedspan.datasets.sources.streamed_table import stream
    from fedspan.engines.local.anndata_sites import federate_anndata
    from fedspan.engines.local.embedded import LocalFederation, federate
    from fedspan.engines.nvflare.client.connect import connect
    from fedspan.few_shot.estimator import FedFewShotRegressor
    from fedspan.landmarks.estimator import FedLandmarks
    from fedspan.maps.tsne import FedTSNE
    from fedspan.maps.umap import FedUMAP
    from fedspan.mixed_regression.estimator import FedMixedRegressor
    from fedspan.pca.estimator import FedPCA
    from fedspan.persistence import load, save
    from fedspan.pipelines import export, partial_fit
    from fedspan.plots import plot_components, plot_map, plot_scores
    from fedspan.statistics.combat.combat_estimator import FedComBat
    from fedspan.statistics.describe.describe_table import describe
    from fedspan.statistics.regression.linear_regression import FedLinearRegression
    from fedspan.statistics.regression.logistic_regression import FedLogisticRegression
    from fedspan.statistics.regression.poisson_regression import FedPoissonRegression
    from fedspan.statistics.survival.cox_regression import FedCoxRegression
    from fedspan.statistics.survival.kaplan_meier import FedKaplanMeier
    from fedspan.tables.encoder import FedTabularEncoder
    from fedspan.tables.scaler import FedStandardScaler

__version__ = "0.1.0"

#: Every estimator and the module that defines it.
ESTIMATORS = {
    "FedAnomalyDetector": "anomaly.anomaly_detector",
    "FedAutoencoderDetector": "anomaly.autoencoder_detector",
    "FedBiGANDetector": "anomaly.bigan_detector",
    "FedCentersDetector": "anomaly.centers_detector",
    "FedComBat": "statistics.combat.combat_estimator",
    "FedCoxRegression": "statistics.survival.cox_regression",
    "FedFewShotRegressor": "few_shot.estimator",
    "FedHarmony": "atlases.harmony",
    "FedIsolationDetector": "anomaly.isolation_detector",
    "FedKMeans": "clustering.k_means",
    "FedKaplanMeier": "statistics.survival.kaplan_meier",
    "FedLandmarks": "landmarks.estimator",
    "FedLinearRegression": "statistics.regression.linear_regression",
    "FedLogisticRegression": "statistics.regression.logistic_regression",
    "FedMixedRegressor": "mixed_regression.estimator",
    "FedPCA": "pca.estimator",
    "FedPCADetector": "anomaly.pca_detector",
    "FedPoissonRegression": "statistics.regression.poisson_regression",
    "FedSpectralClustering": "clustering.spectral",
    "FedStandardScaler": "tables.scaler",
    "FedTSNE": "maps.tsne",
    "FedTabularEncoder": "tables.encoder",
    "FedUMAP": "maps.umap",
    "LocalPCADetector": "anomaly.local_pca_detector",
}
# Imported on first use, so that ``import fedspan`` needs neither SciPy nor scikit-learn.
_LATER = {
    **ESTIMATORS,
    "DriftMonitor": "anomaly.drift_monitor",
    "LocalFederation": "engines.local.embedded",
    "atlas": "atlases.whole_way",
    "connect": "engines.nvflare.client.connect",
    "describe": "statistics.describe.describe_table",
    "drift": "anomaly.drift",
    "export": "pipelines",
    "federate": "engines.local.embedded",
    "federate_anndata": "engines.local.anndata_sites",
    "gateway_site": "anomaly.parts.gateway_sums",
    "load": "persistence",
    "partial_fit": "pipelines",
    "plot_components": "plots.component_plot",
    "plot_map": "plots.map_plot",
    "plot_scores": "plots.score_plot",
    "save": "persistence",
    "stream": "datasets.sources.streamed_table",
}
_MODULES = (
    *("aggregation", "attacks", "audit", "datasets", "errors", "linalg", "model_selection", "privacy", "protocols"),
    *("report", "statistics", "tracking", "wire"),
)

__all__ = [
    "DriftMonitor",
    "FaultPlan",
    "FedAnomalyDetector",
    "FedAutoencoderDetector",
    "FedBiGANDetector",
    "FedCentersDetector",
    "FedComBat",
    "FedCoxRegression",
    "FedFewShotRegressor",
    "FedHarmony",
    "FedIsolationDetector",
    "FedKMeans",
    "FedKaplanMeier",
    "FedLandmarks",
    "FedLinearRegression",
    "FedLogisticRegression",
    "FedMixedRegressor",
    "FedPCA",
    "FedPCADetector",
    "FedPoissonRegression",
    "FedSpectralClustering",
    "FedStandardScaler",
    "FedTSNE",
    "FedTabularEncoder",
    "FedUMAP",
    "Federation",
    "LocalFederation",
    "LocalPCADetector",
    "Policy",
    "Replies",
    "RunRecord",
    "SecureSum",
    "Site",
    "atlas",
    "connect",
    "describe",
    "drift",
    "export",
    "federate",
    "federate_anndata",
    "gateway_site",
    "load",
    "partial_fit",
    "plot_components",
    "plot_map",
    "plot_scores",
    "save",
    "step",
    "stream",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"fedspan.{_LATER[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"fedspan.{name}")
    raise AttributeError(f"module 'fedspan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER, *_MODULES])
