"""Networks in numpy: sizes, arrays, start."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.anomaly.autoencoder_detector import autoencoder_network
from fedspan.anomaly.bigan_detector import bigan_network
from fedspan.anomaly.parts.networks import SLOPE, Network
from fedspan.errors import InputError

from .network_examples import every_network, weights_of


def test_by_hand():
    network = Network({"chain": (2, 2, 1)})
    W = np.array([1.0, 2.0, -3.0, 1.0, 0.5, -0.5, 2.0, 10.0, 4.0], dtype=np.float32)
    # first layer: [1 2; -3 1] x + [.5, -.5]; second: [2 10] h + 4
    x = np.array([[1.0, 1.0]])
    expected = 2.0 * 3.5 + 10.0 * (SLOPE * -2.5) + 4.0
    assert network.functions(W)["chain"](x).item() == pytest.approx(expected)
    assert network.size == 9


def test_the_paper_s_sizes():
    """Numbers of weights for 39 columns and a code of 16, as the FedPCA authors' networks have them."""
    assert autoencoder_network(39, np.array([32]), 16).size == 3639
    assert autoencoder_network(39, np.array([32, 16]), 16).size == 4183
    assert bigan_network(39, np.array([16]), 16).size == 2760
    assert bigan_network(39, np.array([20, 16, 8]), 16).size == 4456


@every_network
def test_rows_are_not_written_to(network):
    weights = weights_of(network)
    for chain, widths in network.chains.items():
        X = np.ones((3, widths[0]))
        X.flags.writeable = False
        network.functions(weights)[chain](X)


def test_weights_of_another_network_are_refused():
    with pytest.raises(InputError, match=r"shape \(5,\), and this network has 9 weights"):
        Network({"chain": (2, 2, 1)}).arrays(np.zeros(5, dtype=np.float32))


def test_the_start_is_glorot_s():
    network = Network({"chain": (300, 200, 100)})
    named = network.arrays(network.start(np.random.default_rng(0)))
    for name, array in named.items():
        if name.endswith("bias"):
            assert not array.any()
        else:
            bound_ = np.sqrt(6.0 / sum(array.shape))
            assert 0.99 * bound_ < np.abs(array).max() <= bound_
            assert array.std() == pytest.approx(bound_ / np.sqrt(3), rel=0.02)
