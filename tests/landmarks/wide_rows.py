"""Rows of many columns that lie near a few directions, and sites that have one group of them each."""

from __future__ import annotations

import numpy as np

import fedspan as fs

COLUMNS = 120


def wide(n=160, columns=COLUMNS, seed=0):
    """Return rows (n, columns) of three groups near 8 directions, about a large mean, and their groups."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(99).normal(size=(8, columns))
    groups = rng.integers(0, 3, n)
    inner = rng.normal(size=(n, 8)) + 5 * np.eye(3, 8)[groups]
    return 50.0 + inner @ directions + 0.3 * rng.normal(size=(n, columns)), groups


def federation(n=160, columns=COLUMNS, **options):
    X, groups = wide(n, columns)
    return fs.federate(X, sites=groups, **options)
