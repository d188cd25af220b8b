"""Every estimator of the package, found by itself, with quick settings for small tables."""

from __future__ import annotations

import importlib

import numpy as np

from fedspan.federation.site.discovery import ROOMS

from .discovery import arguments, public_classes

#: What makes an estimator quick and well-posed on the small tables of these tests.
PARAMETERS: dict[str, dict] = {
    "FedAutoencoderDetector": {"hidden": (8,), "max_rounds": 4, "local_epochs": 1},
    "FedBiGANDetector": {"hidden": (8,), "max_rounds": 4, "local_epochs": 1},
    "FedFewShotRegressor": {"iterations": 20},
    "FedHarmony": {"n_clusters": 2, "max_iter": 2, "max_iter_cluster": 2, "block_size": 0.5, "n_init": 1},
    "FedKMeans": {"n_clusters": 3, "post_labels": True},  # the same results per row, of a table or a federation
    "FedLandmarks": {"n_landmarks": 10, "rounds": 5, "n_frequencies": 16},
    "FedMixedRegressor": {"n_clusters": 1, "update": "exact"},
    "FedSpectralClustering": {"n_clusters": 3, "n_landmarks": 10, "rounds": 5},
    "FedTSNE": {"n_landmarks": 10, "rounds": 5, "early_exaggeration_iter": 10, "n_iter": 10, "perplexity": 5.0},
    "FedUMAP": {"n_landmarks": 10, "rounds": 5, "n_epochs": 10, "n_neighbors": 5},
}
#: For the parameters of estimators that have none above.
USUAL = {"n_clusters": 3, "n_components": 2, "n_landmarks": 10, "rank": 2}


def estimators_of(*packages):
    """Return what can be fitted, but for what exists only to be built upon."""
    found = {name: kind for package in packages for name, kind in public_classes(package, can_be_fitted).items()}
    bases = {base for kind in found.values() for base in kind.__mro__[1:]}
    return {name: kind for name, kind in found.items() if kind not in bases}


def can_be_fitted(thing):
    return hasattr(thing, "fit")


FOUND = estimators_of(*map(importlib.import_module, ROOMS))
CLASSES = list(FOUND.values())


def make(kind, **more):
    quick = PARAMETERS.get(kind.__name__)
    if quick is None:
        quick = arguments(kind, USUAL, "PARAMETERS in tests/laws/estimator_examples.py")
    return kind(**{**quick, **more})


def table(seed=0, n=60, d=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0, np.arange(n) % 4


Y = np.random.default_rng(1).normal(size=60)  # targets of the rows of `table`, for estimators that learn from targets
SURVIVAL = np.column_stack([np.ceil(5 * np.exp(Y)), np.arange(60) % 3 > 0])
#: Targets of another kind, by estimator.
TARGETS = {
    "FedLogisticRegression": (Y > 0.1).astype(int),
    "FedPoissonRegression": np.floor(np.exp(Y)),
} | dict.fromkeys(("FedCoxRegression", "FedKaplanMeier"), SURVIVAL)


def target_of(kind):
    """Return the targets of the rows of `table` that an estimator can learn."""
    return TARGETS.get(kind.__name__, Y)


def fitted(estimator):
    """Return what fitting set, but for the record, which holds times."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") and name != "run_"}


def assert_same_fit(a, b, order=None):
    """Compare what fitting set; results per row are those of `a` in another `order`."""
    assert fitted(a).keys() == fitted(b).keys()
    for name, value in fitted(a).items():
        if order is not None and hasattr(a, "row_sites_") and np.shape(value)[:1] == (len(order),):
            value = value[order]
        np.testing.assert_array_equal(value, fitted(b)[name], err_msg=name)
