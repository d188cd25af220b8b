"""The scikit-learn faces of the protocols."""

from __future__ import annotations

from fedspan.estimators.files import load
from fedspan.estimators.pca import FedPCA
from fedspan.estimators.pca_detector import FedPCADetector
from fedspan.estimators.scaler import FedStandardScaler

__all__ = ["FedPCA", "FedPCADetector", "FedStandardScaler", "load"]
