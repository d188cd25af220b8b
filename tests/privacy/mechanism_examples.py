"""Mechanisms, a table and sites with ledgers, for tests of private fits."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.privacy import GaussianData, GaussianGradient, Ledger, PaperNoise

COVERED = GaussianGradient(40.0, 1e-5, center=0.5, scale=(2.0, 1.0, 1.0, 0.5))
GRADIENT = GaussianGradient(40.0, 1e-5)
DATA = GaussianData(200.0, 1e-5, clip=6.0, center=0.5)
MECHANISMS = [COVERED, GRADIENT, DATA, PaperNoise(0.5)]


def table(n=240):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 4)) * [2, 1, 1, 0.5] + 0.5, np.arange(n) % 3


def sites_with_ledgers(folder, epsilon=500.0, **options):
    X, labels = table()
    return [
        fs.Site(str(k), X[labels == k], ledger=Ledger(folder / f"{k}.ledger", epsilon=epsilon, delta=1e-5, **options))
        for k in range(3)
    ]


def landmarks(privacy, fed, **options):
    return fs.FedLandmarks(12, rounds=4, privacy=privacy, random_state=0, **options).fit(fed)
