"""The scikit-learn faces of the protocols."""

from __future__ import annotations

from fedspan.anomaly.autoencoder_detector import FedAutoencoderDetector
from fedspan.anomaly.bigan_detector import FedBiGANDetector
from fedspan.anomaly.local_pca_detector import LocalPCADetector
from fedspan.anomaly.pca_detector import FedPCADetector
from fedspan.clustering.k_means import FedKMeans
from fedspan.clustering.spectral import FedSpectralClustering
from fedspan.few_shot.estimator import FedFewShotRegressor
from fedspan.landmarks.estimator import FedLandmarks
from fedspan.maps.tsne import FedTSNE
from fedspan.maps.umap import FedUMAP
from fedspan.mixed_regression.estimator import FedMixedRegressor
from fedspan.pca.estimator import FedPCA
from fedspan.persistence import load
from fedspan.tables.encoder import FedTabularEncoder
from fedspan.tables.scaler import FedStandardScaler

__all__ = [
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
    "LocalPCADetector",
    "load",
]
