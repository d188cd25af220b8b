"""Every estimator, found by itself, fitted on a small federation, for the tests of reports."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd

import fedspan as fs

NAMES = list(fs.ESTIMATORS)
#: Parameters that make an estimator quick on this small table; a new estimator is tested without an entry here.
PARAMETERS: dict[str, dict] = {
    "FedAutoencoderDetector": {"hidden": (8,), "max_rounds": 30, "local_epochs": 1},
    "FedBiGANDetector": {"hidden": (8,), "max_rounds": 30, "local_epochs": 1},
    "FedFewShotRegressor": {"rank": 2, "iterations": 20, "tol": 0.0},
    "FedKMeans": {"n_clusters": 3},
    "FedLandmarks": {"n_landmarks": 20, "rounds": 8, "n_frequencies": 64},
    "FedMixedRegressor": {"n_clusters": 2, "update": "exact"},
    "FedPCADetector": {"n_components": 2, "solver": "subspace_median"},
    "FedSpectralClustering": {"n_clusters": 3, "n_landmarks": 20, "rounds": 8},
    "FedTSNE": {"n_landmarks": 20, "rounds": 8, "early_exaggeration_iter": 20, "n_iter": 20, "perplexity": 8.0},
    "FedUMAP": {"n_landmarks": 20, "rounds": 8, "n_epochs": 20, "n_neighbors": 8},
}
COLUMNS = ["age", "dose", "weight", "pulse", "glucose", "iron", "sodium", "length of stay"]


def table(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows in three groups, targets, tasks and sites."""
    rng = np.random.default_rng(seed)
    d = len(COLUMNS)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 6.0 * rng.normal(size=(3, d))[np.arange(n) % 3]
    sites = np.array(["east", "north", "south", "west"])[np.arange(n) % 4]
    models = rng.normal(size=(2, d))[(np.arange(n) % 4) // 2]
    return pd.DataFrame(X, columns=COLUMNS), np.einsum("nd,nd->n", X, models), np.arange(n) % 6, sites


#: What an estimator learns of the targets, where it is not numbers.
TARGETS = {
    "FedLogisticRegression": lambda y: (y > np.median(y)).astype(int),
    "FedPoissonRegression": lambda y: np.floor(np.abs(y)),
    **dict.fromkeys(
        ("FedCoxRegression", "FedKaplanMeier"),
        lambda y: np.column_stack([np.ceil(np.abs(y)), np.arange(len(y)) % 3 > 0]),
    ),
}


def federation(name: str = "", **options) -> fs.Federation:
    X, y, task, sites = table()
    y = TARGETS.get(name, np.asarray)(y)
    return fs.federate(X, y, sites=sites, task=task, **{"seed": 3, **options})


@cache
def fitted(name: str):
    """Return the estimator of this name, fitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short runs have not converged
        return getattr(fs, name)(**PARAMETERS.get(name, {})).fit(federation(name))
