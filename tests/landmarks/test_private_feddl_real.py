"""The epsilon of the paper's noise on the paper's data."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.privacy import PaperNoise
from tests.real_data import mnist


@pytest.mark.slow
@pytest.mark.parametrize(("split", "least", "most"), [("iid", 75.0, 95.0), ("one class a site", 7.5, 10.0)])
def test_the_first_round_on_mnist(split, least, most):
    """Ten sites of 4,000 rows, 500 landmarks, delta 1e-5: already one of the 50 rounds has this epsilon."""
    bunch = mnist()
    y = np.asarray(bunch.target).astype(int)
    chosen = np.concatenate([np.flatnonzero(y == k)[:4000] for k in range(10)])
    X = np.asarray(bunch.data).reshape(len(y), -1)[chosen].astype(np.float32) / 255
    sites = y[chosen] if split != "iid" else np.random.default_rng(0).permutation(np.repeat(np.arange(10), 4000))
    model = fs.FedLandmarks(500, rounds=1, n_frequencies=0, privacy=PaperNoise(1.0), random_state=0)
    spent = model.fit(X, sites=sites).privacy_
    assert least < spent.worst < most
    assert max(spent.accountant.values()) == pytest.approx(spent.worst, rel=0.05)
