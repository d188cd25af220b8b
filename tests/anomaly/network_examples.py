"""Networks that the tests of training share."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.anomaly.autoencoder_detector import autoencoder_network
from fedspan.anomaly.bigan_detector import bigan_network

NETWORKS = {
    "autoencoder": autoencoder_network(7, np.array([5]), 3),
    "deep autoencoder": autoencoder_network(7, np.array([6, 5, 4]), 2),
    "bigan": bigan_network(6, np.array([5]), 2),
    "deep bigan": bigan_network(6, np.array([5, 4, 3]), 2),
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def weights_of(network, seed=0):
    rng = np.random.default_rng(seed)
    return (network.start(rng) + 0.1 * rng.normal(size=network.size)).astype(np.float32)
