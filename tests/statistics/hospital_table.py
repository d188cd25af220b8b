"""A table of patients with text, gaps and small groups, and ways to divide it into sites."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fedspan as fs

CATEGORIES = {"sex": ["f", "m"], "code": ["A", "B", "C", "D", "E", "F"]}


def patients(n=240, seed=0):
    """Return numbers of several kinds, text, missing cells of each, and a column without any value."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.integers(20, 90, n).astype(float), "crp": rng.lognormal(1, 1, n)})
    table["weight"] = 1e6 + rng.normal(size=n) + table["age"] / 30
    table["sex"] = rng.choice(["f", "m"], n)
    table["code"] = rng.choice(list("ABCDEF"), n, p=[0.4, 0.3, 0.2, 0.05, 0.03, 0.02])
    table["flag"] = rng.integers(0, 2, n)
    table["none"] = np.nan
    for column, share in (("crp", 0.1), ("weight", 0.15), ("code", 0.05)):
        table.loc[rng.random(n) < share, column] = None if column == "code" else np.nan
    return table


def split(kind, n, seed=1):
    """Return the site of each row: even, with a site of three rows, sorted, or all at one site."""
    rng = np.random.default_rng(seed)
    if kind == "tiny":
        return np.where(np.arange(n) < 3, "tiny", rng.choice(["a", "b", "c"], n))
    return {"even": np.arange(n) % 4, "sorted": np.arange(n) * 5 // n, "one": np.zeros(n, dtype=int)}[kind]


def federated(table, kind="even", **options):
    """Return a federation of the rows."""
    return fs.federate(table, sites=split(kind, len(table)), **options)
