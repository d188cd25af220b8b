"""Data of the demo: scikit-learn's tables, with column names where pandas is installed, and simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedspan.arrays import Array

#: What a gateway counts of each connection, and how each counter follows from load, length and chatter.
COUNTERS = {
    "bytes sent": (1.0, 0.6, 0.0),
    "bytes received": (0.9, 0.7, 0.1),
    "packets sent": (0.9, 0.3, 0.2),
    "packets received": (0.8, 0.4, 0.2),
    "seconds open": (0.1, 1.0, 0.0),
    "name look-ups": (0.2, 0.0, 1.0),
    "ports contacted": (0.1, 0.1, 0.5),
    "hosts contacted": (0.2, 0.0, 0.7),
    "failed logins": (0.0, 0.1, 0.3),
    "repeated packets": (0.5, 0.2, 0.1),
}


def named(X: Array, names: Sequence[str]) -> Any:
    """Return a data frame with these columns; the array itself, where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return X
    return pd.DataFrame(X, columns=list(names))


def simulated_traffic(rows: int, seed: int) -> Array:
    """Return the logarithms of the counters of normal connections (rows, 10), which hang together."""
    rng = np.random.default_rng(seed)
    loads = np.array(list(COUNTERS.values()))
    noise: Array = 0.35 * rng.normal(size=(rows, len(loads)))
    return np.asarray(rng.normal(size=(rows, loads.shape[1])) @ loads.T + noise + 3.0)


def with_attacks(X: Array, seed: int) -> Array:
    """Return connections that were turned into attacks: scans, guessed passwords and stolen data, of any strength."""
    rng = np.random.default_rng(seed)
    X, names = X.copy(), list(COUNTERS)
    kinds = (("ports contacted", "hosts contacted"), ("failed logins", "packets sent"), ("bytes sent", "seconds open"))
    for kind, counters in enumerate(kinds):
        some = np.arange(len(X)) % len(kinds) == kind
        for sign, counter in zip((1.0, 0.6), counters, strict=True):
            X[some, names.index(counter)] += sign * rng.gamma(6.0, 0.55, size=some.sum())
    return X


def simulated_clinics(clinics: int, rows: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return doses (n, 1), answers (n,), the clinic of each row and the hidden group of each clinic.

    The answer to a dose follows one of three lines.
    """
    rng = np.random.default_rng(seed)
    group = np.arange(clinics) % 3
    clinic = np.repeat(np.arange(clinics), rows)
    dose = rng.uniform(-1.0, 1.0, size=(len(clinic), 1))
    answer = dose[:, 0] * np.array([2.0, 0.2, -1.6])[group[clinic]] + 0.25 * rng.normal(size=len(clinic))
    return dose, answer, np.array([f"clinic-{number:02d}" for number in clinic]), group
