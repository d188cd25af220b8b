"""Sites with three groups of rows, and FedDL on them."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.landmarks.feddl import feddl


def blobs(seed=0, n=240, m=4):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return rng.normal(size=(n, m)) + 3 * rng.normal(size=(3, m))[labels], labels


def run(X, sites, **settings):
    return fs.federate(X, sites=sites, seed=1).run(feddl, **{"n_landmarks": 12, **settings})


def objective(X, Y, gamma):
    """Return the paper's objective (9): a U-statistic in Y."""
    K = np.exp(-gamma * ((Y[:, None] - Y) ** 2).sum(axis=2))
    KX = np.exp(-gamma * ((X[:, None] - Y) ** 2).sum(axis=2))
    n_y = len(Y)
    return (K.sum() - n_y) / (n_y * (n_y - 1)) - 2 * KX.mean()


def leaves(fed, site, *, at, back=10**9):
    """Return the federation with a site that is offline from one call on, and returns at another."""

    def offline(replies, bad, rng, call):
        return {name: None if at <= call.number < back else replies[name] for name in bad}

    return fed.corrupt(offline, [site])
