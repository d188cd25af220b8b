"""Baselines: vanilla FedAvg is pooled least squares, one-shot clustering works where sites have many rows."""

from __future__ import annotations

import numpy as np

from fedspan.linalg import bottleneck_distance
from fedspan.mixed_regression.baselines import one_shot_clustering, vanilla_fedavg

from .mixtures import federation, mixture


def test_baselines():
    made = mixture(12, sizes=(40,) * 30, d=4)
    pooled = np.linalg.lstsq(made[0], made[1], rcond=None)[0]
    one = vanilla_fedavg(federation(made), n_columns=4, local_steps=1, rate=0.5, max_rounds=100)
    np.testing.assert_allclose(one.models[0], pooled, atol=1e-6)
    models, labels, names = one_shot_clustering(federation(made), n_clusters=2, max_rounds=200)
    assert bottleneck_distance(models, made[4]) < 0.1
    assert len(labels) == len(names) == 30
