"""Tables for the tests of regressions, in unlike units, and their splits."""

from __future__ import annotations

import numpy as np


def unlike_columns(n=300, seed=0):
    """Return five columns of unlike size and place; the last is nearly the first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * [1.0, 10.0, 1e3, 1e-3, 1.0] + [0.0, 100.0, 1e6, 0.0, 5.0]
    X[:, 4] = X[:, 0] + 1e-3 * rng.normal(size=n)
    return X


def standard(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


#: Labels of sites, by the number of rows: equal, one site, unequal with sites of three rows.
SPLITS = {
    "seven": lambda n: np.arange(n) % 7,
    "one": lambda n: np.zeros(n, dtype=int),
    "of three rows": lambda n: np.minimum(np.arange(n) // 3, 12),
}


def close(found, wanted, rtol=1e-8):
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=0.0)
