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

from fedspan.federation import FaultPlan, Federation, Policy, Replies, RunRecord, SecureSum, Site, lens, step

if TYPE_CHECKING:
    from fedspan.engines.local.embedded import LocalFederation, federate
    from fedspan.engines.nvflare.client.connect import connect
    from fedspan.estimators import (
        FedAutoencoderDetector,
        FedBiGANDetector,
        FedFewShotRegressor,
        FedKMeans,
        FedLandmarks,
        FedMixedRegressor,
        FedPCA,
        FedPCADetector,
        FedSpectralClustering,
        FedStandardScaler,
        FedTabularEncoder,
        FedTSNE,
        FedUMAP,
        LocalPCADetector,
        load,
    )

__version__ = "0.1.0"

# What needs SciPy or scikit-learn is imported when it is first used: ``import fedspan`` stays light.
_LATER = {
    "LocalFederation": "fedspan.engines.local.embedded",
    "federate": "fedspan.engines.local.embedded",
    "FedAutoencoderDetector": "fedspan.estimators",
    "FedBiGANDetector": "fedspan.estimators",
    "FedFewShotRegressor": "fedspan.estimators",
    "FedKMeans": "fedspan.estimators",
    "FedLandmarks": "fedspan.estimators",
    "FedMixedRegressor": "fedspan.estimators",
    "FedPCA": "fedspan.estimators",
    "FedPCADetector": "fedspan.estimators",
    "FedSpectralClustering": "fedspan.estimators",
    "FedStandardScaler": "fedspan.estimators",
    "FedTSNE": "fedspan.estimators",
    "FedTabularEncoder": "fedspan.estimators",
    "FedUMAP": "fedspan.estimators",
    "LocalPCADetector": "fedspan.estimators",
    "connect": "fedspan.engines.nvflare.client.connect",
    "load": "fedspan.estimators",
}
_MODULES = ("aggregation", "attacks", "datasets", "errors", "linalg", "privacy", "protocols", "report", "wire")

__all__ = [
    "FaultPlan",
    "FedAutoencoderDetector",
    "FedBiGANDetector",
    "FedFewShotRegressor",
    "FedKMeans",
    "FedLandmarks",
    "FedMixedRegressor",
    "FedPCA",
    "FedPCADetector",
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
    "connect",
    "federate",
    "lens",
    "load",
    "step",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"fedspan.{name}")
    raise AttributeError(f"module 'fedspan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER, *_MODULES])
