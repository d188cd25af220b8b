"""Rows of real tables, ordered by class, and recall of neighbours."""

from __future__ import annotations

import numpy as np

from fedspan.datasets import load_coil20, load_fashion_mnist, load_mice_protein
from tests.real_data import mnist, real_file


def images(name, rows):
    file, load, largest = {
        "mnist": ("mnist.npz", mnist, 255),
        "fashion": ("fashion_mnist_t10k.npz", load_fashion_mnist, 255),
        "coil20": ("coil20_32x32.npz", load_coil20, 255),
        "mice": ("mice_protein.csv.gz", lambda: load_mice_protein(missing="mean"), 1),
    }[name]
    real_file(file)
    data = load()
    X, y = data.data / float(largest), np.unique(data.target, return_inverse=True)[1]
    if name == "mice":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    chosen = np.random.default_rng(0).permutation(len(X))[:rows]
    order = chosen[np.argsort(y[chosen], kind="stable")]
    return X[order], y[order]


def recall(found, truth):
    return np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, truth, strict=True)])
