"""3,500 blood cells of three donors, before and after Harmony in R, and small tables with effects of batches."""

from __future__ import annotations

import gzip

import numpy as np

from tests.real_data import real_file


def read(name):
    with gzip.open(real_file(f"pbmc_3500/{name}"), "rt") as file:
        return np.array([line.split("\t") for line in file.read().strip().split("\n")[1:]])


def blood():
    """Return the 30 components of all cells, those that R corrected, and the donors."""
    before = read("pbmc_3500_pcs.tsv.gz").astype(float)
    after = read("pbmc_3500_pcs_harmonized.tsv.gz").astype(float)
    return before, after, read("pbmc_3500_meta.tsv.gz")[:, 0]


def correlations(A, B):
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(A.T, B.T, strict=True)])


def same_among_neighbours(A, labels, k=30):
    """Return the share of a row's k nearest rows that have its label, over the share by chance."""
    apart = (A**2).sum(axis=1)[:, None] + (A**2).sum(axis=1) - 2 * A @ A.T
    np.fill_diagonal(apart, np.inf)
    near = np.argpartition(apart, k, axis=1)[:, :k]
    chance = sum((np.mean(labels == name)) ** 2 for name in np.unique(labels))
    return (labels[near] == labels[:, None]).mean() / chance


def types_and_batches(n=300, d=6, batches=3, seed=0):
    """Return rows of four types, with a shift for each batch, their types and their batches."""
    rng = np.random.default_rng(seed)
    kind, batch = rng.integers(4, size=n), rng.integers(batches, size=n)
    centres, shifts = 6 * rng.normal(size=(4, d)), 2 * rng.normal(size=(batches, d))
    return centres[kind] + shifts[batch] + rng.normal(size=(n, d)), kind, batch
