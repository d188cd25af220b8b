"""The scikit-learn faces of the protocols."""

from __future__ import annotations

from fedspan.estimators.files import load
from fedspan.estimators.pca import FedPCA
from fedspan.estimators.scaler import FedStandardScaler
from fedspan.estimators.tabular import FedTabularEncoder

__all__ = ["FedPCA", "FedStandardScaler", "FedTabularEncoder", "load"]
