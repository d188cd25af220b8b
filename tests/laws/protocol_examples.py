"""An example of every protocol of the package.

One without an entry in `SETTINGS` is found and run all the same, where its parameters are called what they usually are.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

import fedspan as fs
from fedspan.aggregation import GeometricMedian
from fedspan.atlases.harmony_by_sums import HarmonySettings
from fedspan.datasets.sources.cell_table import CellTable
from fedspan.federation.site.discovery import ROOMS
from fedspan.gateway.scorer import FORMAT
from fedspan.landmarks.feddl import Landmarks
from fedspan.maps.by_sums import Layout
from fedspan.maps.parts.map_centres import Codebooks
from fedspan.maps.parts.noisy_centres import NoisyBook
from fedspan.mixed_regression.parts.cluster_rounds import Belief
from fedspan.pca.subspace_iteration import local_product
from fedspan.privacy import GaussianCenters, GaussianGradient, GaussianMoments, PaperNoise
from tests.atlases.cell_examples import cells

from .discovery import NeedsAnExampleError, arguments, modules_of
from .protocol_laws import Example


def spiked_sites():
    """Nine sites of unequal size, with three strong directions in eight columns."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(8, 3)))[0]
    sites = []
    for i in range(9):
        n = 20 + 3 * i
        X = rng.normal(size=(n, 3)) * [5.0, 3.0, 2.0] @ axes.T + 0.3 * rng.normal(size=(n, 8)) + i / 10
        sites.append(fs.Site(f"site-{i}", X))
    return sites


def task_sites():
    """Nine sites with tasks of rank two in eight columns: some tasks at all sites, some at one, some with few rows."""
    rng = np.random.default_rng(2)
    loadings = rng.normal(size=(21, 2))
    sites = []
    for i in range(9):
        task = np.r_[np.repeat(np.arange(12), 4 + i % 3), np.full(6, 12 + i), np.full(2, (i + 1) % 12)]
        X = rng.normal(size=(len(task), 8))
        y = np.einsum("ij,ij->i", X @ U[:, :2], loadings[task]) + 0.1 * rng.normal(size=len(task))
        sites.append(fs.Site(f"site-{i}", X, y, task))
    return sites


def whole_task_sites():
    """Nine sites with two tasks each, which no other site has."""
    rng = np.random.default_rng(4)
    sites = []
    for i in range(9):
        task = np.array([f"own-{2 * i}", f"own-{2 * i + 1}"]).repeat(10 + i)
        X = rng.normal(size=(len(task), 8))
        sites.append(fs.Site(f"site-{i}", X, X @ U[:, 0] + 0.1 * rng.normal(size=len(task)), task))
    return sites


def labelled_sites():
    """Nine sites of unequal size whose rows have one of three labels."""
    return [fs.Site(site.name, site.X, np.array(["a", "b", "c"])[np.arange(len(site)) % 3]) for site in spiked_sites()]


def cell_sites():
    """Nine sites with counts of cells of three types."""
    data = cells(270, 40, sites=9, types=3)
    found = []
    for name in sorted(set(data.obs["site"])):
        own = data[data.obs["site"] == name].copy()
        found.append(fs.Site(name, CellTable(own), own.obs["type"].to_numpy(dtype=object)))
    return found


def mixed_sites():
    """Nine sites with tables of numbers, text and gaps; one has text in a column of numbers."""
    rng = np.random.default_rng(3)
    sites = []
    for i in range(9):
        n = 20 + i
        frame = pd.DataFrame({"bytes": rng.lognormal(3, 3, n), "level": rng.normal(size=n)})
        frame["proto"] = rng.choice(["tcp", "udp", "-", f"own-{i}"], n)
        frame["depth"] = rng.choice(["1", "2", "?"], n) if i < 8 else "deep"
        sites.append(fs.Site(f"site-{i}", frame))
    return sites


def mixture_sites(classes=False):
    """Nine sites that follow one of two linear models in three columns, or classes of that kind."""
    rng = np.random.default_rng(2)
    sites = []
    for i in range(9):
        X = rng.normal(size=(6 + i, 3))
        y = X @ MODELS[i % 2] + 0.1 * rng.normal(size=len(X))
        sites.append(fs.Site(f"site-{i}", X, (y > 0.0).astype(float) if classes else y))
    return sites


def class_sites():
    return mixture_sites(classes=True)


def survival_sites():
    """Nine sites with two groups and two more columns; some rows of each group leave at each of three times."""
    rng = np.random.default_rng(5)
    sites = []
    for i in range(9):
        row = np.arange(48 + 12 * i)
        X = np.column_stack([row % 2, rng.normal(size=(len(row), 2))])
        sites.append(fs.Site(f"site-{i}", X, np.column_stack([1 + row // 2 % 3, row // 6 % 2]).astype(float)))
    return sites


def separated_sites():
    """Nine sites whose targets the sign of the first column decides."""
    return [fs.Site(site.name, site.X, (site.X[:, 0] > 0).astype(float)) for site in class_sites()]


def named_sites():
    """Nine sites with classes that have names."""
    return [fs.Site(site.name, site.X, np.array(["no", "yes"])[site.y.astype(int)]) for site in class_sites()]


def gram_product(fed, Q):
    total = fed.sum(local_product, V=Q)
    return total["product"], dict.fromkeys(total.sites, 1.0)


MODELS = np.array([[1.0, -0.5, 0.5], [-1.0, 1.0, 0.0]])
NEAR = MODELS + 0.2
U = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 3)))[0]

BOOKS = Codebooks(codebooks=1, rows_per_centre=40, axes=3, k_means_rounds=1)
MOMENTS = GaussianMoments(50.0, 1e-5, lower=-12.0, upper=12.0)
LEVELS = GaussianMoments(50.0, 1e-5, lower=-10.0, upper=10.0)
NAMES = {"proto": ["tcp", "udp"], "depth": ["1", "2"]}
LANDMARKS = Landmarks(np.arange(24.0).reshape(3, 8), 0.1, 0.0, np.zeros(8), 2.0, "double")

SETTINGS = {
    "agree_on_columns": {},
    "site_adjustment": {"features": np.arange(1, 8), "covariates": np.array([0])},
    "moments": {},
    "row_moments": {"widest": 8},
    "refuse_bad_values": {},
    "quantiles": {"level": 0.9},
    "covariance_pca": {"rank": 3},
    "subspace_iteration": {"rank": 3, "n_columns": 8, "max_rounds": 15},
    "stack_pca": {"rank": 3},
    "residual": {"components": U.T},
    "power": {"rank": 3, "n_columns": 8, "iterations": 4},
    "fedpe": {"rank": 3, "n_columns": 8, "participation": 0.7, "local_steps": 2, "max_rounds": 5},
    "fedpg": {"rank": 3, "n_columns": 8, "participation": 0.7, "local_steps": 2, "max_rounds": 5},
    "axis_variances": {"U": U, "aggregator": GeometricMedian()},
    "subspace_median": {"rank": 3},
    "median_of_means": {"rank": 3, "n_columns": 8, "groups": 4, "iterations": 4},
    "resilient_power": {"rank": 3, "n_columns": 8, "iterations": 4},
    "resilient_covariance": {"rank": 3},
    "local_detectors": {"rank": 3, "level": 0.9},
    "isolation_counts": {"n_trees": 5, "depth": 3},
    "leaf_counts": {"features": np.arange(6).reshape(2, 3), "cuts": np.zeros((2, 3))},
    "update_sums": {
        "model": {
            "format": np.array(FORMAT),
            "threshold": np.array(1.0),
            "columns": np.array([f"column {j}" for j in range(8)]),
            "mean": np.zeros(8),
            "scale": np.ones(8),
            "centers": np.arange(24.0).reshape(3, 8) / 8.0,
            "features": np.arange(6).reshape(2, 3),
            "cuts": np.zeros((2, 3)),
            "depths": np.arange(16.0).reshape(2, 8),
            "usual": np.array(5.0),
            "root": np.eye(8),
            "edges": np.linspace(0.0, 9.0, 7) * np.ones((3, 1)),
            "ranks": np.linspace(0.0, 3.0, 7) * np.ones((3, 1)),
            "high": np.ones(3),
            "width": np.ones(3),
            "sketch_edges": np.linspace(0.0, 9.0, 9),
        }
    },
    "score_counts": {"edges": np.linspace(-3.0, 3.0, 9) * np.ones((8, 1))},
    "column_kinds": {"known": np.full(4, -1, dtype=np.int8)},
    "heavy_tails": {"wanted": np.arange(4) < 2, "centre": np.zeros(4), "log_centre": np.zeros(4)},
    "category_union": {"wanted": np.array([2]), "max_categories": 5},
    "most_frequent": {
        "wanted": np.array([2]),
        "candidates": (("own-3", "tcp", "udp"),),
        "max_categories": 2,
    },
    "fedavg": {
        "weights": np.linspace(-0.3, 0.3, 76, dtype=np.float32),
        "train": "anomaly.autoencoder_training",
        "check": "anomaly.autoencoder_loss",
        "network": {"hidden": np.array([3]), "latent": 2},
        "training": {"local_epochs": 1, "batch_size": 16},
        "participation": 0.7,
        "max_rounds": 3,
        "check_every": 2,
        "patience": 1,
    },
    "autoencoder": {"n_columns": 8, "hidden": (4,), "latent": 2, "max_rounds": 2, "check_every": 1},
    "bigan": {"n_columns": 8, "hidden": (4,), "latent": 2, "max_rounds": 2, "aggregator": GeometricMedian()},
    "agree_on_tasks": {"intercept": True},
    "refuse_bad_targets": {},
    "altgdmin": {"rank": 2, "n_columns": 8, "iterations": 4, "power_iterations": 2},
    "byz_altgdmin": {"rank": None, "max_rank": 2, "n_columns": 8, "iterations": 4},
    "pooled_coefs": {"U": U, "tasks": np.arange(21), "intercept": True},
    "median_coefs": {"U": U},
    "common_centre": {"U": U, "intercept": True},
    "voted": {"start": U, "final": U[:, ::-1]},
    "total_scatter": {},
    "orthogonal_iteration": {"product": gram_product, "start": U, "iterations": 4, "rank": 2},
    "feature_scaling": {},
    "feddl": {"n_landmarks": 6, "rounds": 3, "n_frequencies": 8},
    # one round from public moments: after other last bits, a secure sum's say, the next question has other noise
    "private_feddl": {"privacy": GaussianGradient(50.0, 1e-5, 0.0, 2.0), "n_landmarks": 6, "rounds": 1},
    "refuse_strict": {"what": "this has none"},
    "federated_k_means": {"n_clusters": 6, "n_init": 2, "max_iter": 4},
    "map_centres": {"books": BOOKS},
    "private_map": {"layout": Layout(rounds=3, exaggeration_rounds=1, grid=8), "books": BOOKS},
    "one_shot_map": {"layout": Layout(rounds=3, exaggeration_rounds=1, grid=8), "books": BOOKS},
    "noisy_centres": {
        "privacy": GaussianCenters(50.0, 1e-5, 12.0),
        "book": NoisyBook(centres=5, axes=3, k_means_rounds=2),
    },
    "noisy_moments": {"privacy": MOMENTS, "n_columns": 8},
    "noisy_quantiles": {"level": 0.9, "privacy": MOMENTS, "n_columns": 8},
    "noisy_k_means": {"n_clusters": 3, "privacy": MOMENTS, "n_columns": 8, "max_iter": 3},
    "noisy_covariance": {"privacy": MOMENTS, "n_columns": 8},
    "noisy_isolation_counts": {"privacy": MOMENTS, "n_columns": 8, "n_trees": 5, "depth": 3},
    "harmony": {
        "settings": HarmonySettings(n_clusters=2, max_iter=2, max_iter_cluster=1, block_size=0.5, n_init=1),
    },
    "batch_names": {"column": -1},
    "site_mixing": {"neighbors": 60},
    "cluster_agreement": {"centres": np.arange(24.0).reshape(3, 8)},
    "label_names": {},
    "gene_moments": {"n_genes": 40},
    "cell_components": {"genes": np.arange(5, 25), "mean": np.full(20, 2.0), "rank": 3, "max_rounds": 4},
    "cell_clusters": {"centres": np.arange(24.0).reshape(3, 8)},
    "marker_genes": {"clusters": 3, "n_genes": 40, "names": np.array(["type 0", "type 1", "type 2"])},
    "new_effects": {
        "column": -1,
        "names": np.array(["site-1", "site-4"]),
        "Y": np.linspace(-1.0, 1.0, 32).reshape(2, 2, 8),
        "references": np.linspace(-4.0, 4.0, 32).reshape(2, 2, 8),
        "lamb": 1.0,
        "sigma": 0.5,
        "starts": 1,
    },
    "centre_labels": {"centres": np.arange(24.0).reshape(3, 8)},
    "landmark_distances": {"landmarks": LANDMARKS},
    "neighbor_hits": {
        "landmarks": LANDMARKS,
        "method": "coordinates",
        "residuals": False,
        "precision": "single",
    },
}

MIXTURES = {
    "moment_descent": {"n_clusters": 2, "n_columns": 3, "iterations": 2, "subspace_iterations": 4},
    "moment_descent_paper": {
        "n_clusters": 2,
        "start": np.zeros(3),
        "separation": 2.0,
        "iterations": 2,
        "subspace_iterations": 4,
    },
    "spectral_start": {"n_clusters": 2, "n_columns": 3, "subspace_iterations": 4},
    "random_start": {"n_clusters": 2, "n_columns": 3},
    "best_random_start": {"n_clusters": 2, "n_columns": 3, "starts": 2, "rounds": 3},
    "fedx": {"models": NEAR, "max_rounds": 4, "acceleration": 2},
    "exact_round": {"models": NEAR, "belief": Belief(np.full(2, 0.5))},
    "vanilla_fedavg": {"n_columns": 3, "max_rounds": 3},
    "ifca": {"n_clusters": 2, "n_columns": 3, "max_rounds": 3},
    "oracle": {"truth": MODELS, "max_rounds": 3, "aggregator": GeometricMedian()},
    "one_shot_clustering": {"n_clusters": 2, "max_rounds": 2},
    "ask_losses": {"models": NEAR},
    "target_moments": {},
    "cluster_assignment": {"models": NEAR},
    "count_clusters": {"start": np.zeros(3), "flips": 5},
    "spread_over_noise": {"start": np.zeros(3), "flips": 5},
}
CLASSES = {
    "logistic_fedx": {"models": NEAR, "max_rounds": 3, "assignment": "soft"},
    "other_classes": {"robust": False},
}
DESCRIPTIONS = {
    "describe": {"by": "depth", "least_set": 2},
    "histogram": {"column": "level", "by": "depth", "bins": 6},
    "crosstab": {"rows": "proto", "columns": "depth"},
    "correlation": {"method": "spearman"},
    "covariance": {},
    "site_differences": {},
    "overview": {"bins": 4, "least_set": 1},
}
REGRESSIONS = {
    "least_squares": {"effect": "random"},
    "noisy_least_squares": {"privacy": MOMENTS, "n_columns": 4},
    "residual_bins": {"coef": np.array([0.1, 0.5, -0.3, 0.2]), "scale": 2.0},
}
SURVIVALS = {
    "event_counts": {"times": np.arange(1.0, 4.0), "by": 0},
    "log_rank": {"times": [1.0, 2.0, 3.0]},
    "cox_model": {"times": np.arange(1.0, 4.0)},
}
LOGITS = {"generalized_linear_model": {"cov_type": "HC0"}, "target_classes": {}}
SETTINGS |= MIXTURES | CLASSES | DESCRIPTIONS | REGRESSIONS | LOGITS | SURVIVALS


SCORES = ("row_numbers", "error_totals", "hit_rate", "value_totals", "verdict_counts", "roc_area")
SETTINGS |= {name: {} for name in SCORES}
SITES = dict.fromkeys(("error_totals", "hit_rate"), mixture_sites)
SITES |= dict.fromkeys(("verdict_counts", "roc_area"), class_sites)
SITES |= dict.fromkeys(("column_kinds", "heavy_tails", "category_union", "most_frequent"), mixed_sites)
TASKS = ("agree_on_tasks", "refuse_bad_targets", "altgdmin", "byz_altgdmin", "pooled_coefs", "median_coefs")
SITES |= dict.fromkeys((*TASKS, "common_centre", "voted"), task_sites)
SITES |= dict.fromkeys(DESCRIPTIONS, mixed_sites)
SITES |= dict.fromkeys(SURVIVALS, survival_sites)
SITES |= dict.fromkeys((*MIXTURES, *REGRESSIONS), mixture_sites) | dict.fromkeys((*CLASSES, *LOGITS), class_sites)
SITES |= dict.fromkeys(("cluster_agreement", "label_names"), labelled_sites)
SITES |= dict.fromkeys(("gene_moments", "cell_components", "marker_genes"), cell_sites)


#: For the parameters of protocols that have no settings.
USUAL = {
    "aggregator": GeometricMedian(),
    "intercept": True,
    "iterations": 4,
    "level": 0.9,
    "max_rounds": 4,
    "n_clusters": 2,
    "n_columns": 8,
    "n_landmarks": 6,
    "rank": 3,
    "rounds": 3,
    "U": U,
}


def example_of(function: Callable[..., Any]) -> Example:
    """Return a protocol without settings with usual ones; its sites have targets where its file speaks of them."""
    source = inspect.getsource(inspect.getmodule(function) or function)
    sites = task_sites if "site.y" in source or "site.task" in source else spiked_sites
    first, *_ = inspect.signature(function).parameters
    given = arguments(function, USUAL | {first: None}, "SETTINGS in tests/laws/protocol_examples.py")
    return Example(function, {name: value for name, value in given.items() if name != first}, sites)


def protocols_of(packages: Iterable[ModuleType]) -> dict[str, Callable[..., Any]]:
    """Return every protocol by name: each public function of the packages whose first parameter is ``fed``."""
    found: dict[str, Callable[..., Any]] = {}
    for module in (module for package in packages for module in modules_of(package)):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith("_"):
                continue
            if next(iter(inspect.signature(function).parameters), "") == "fed":
                other = found.get(name)
                if other is not None:
                    raise NeedsAnExampleError(
                        f"{other.__module__} and {module.__name__} both have a protocol {name}, and fed.run, the index "
                        "and the sheets go by its name: rename the new one after what it computes on"
                    )
                found[name] = function
    return found


def examples_of(*packages: ModuleType) -> dict[str, Example]:
    return {
        name: Example(function, SETTINGS[name], SITES.get(name, spiked_sites))
        if name in SETTINGS
        else example_of(function)
        for name, function in protocols_of(packages).items()
    }


EXAMPLES = examples_of(*map(importlib.import_module, ROOMS))

#: Protocols with other settings, for steps that the examples above do not run.
VARIANTS = [
    replace(EXAMPLES[name], given={**EXAMPLES[name].given, **more}, sites=sites)
    for name, more, sites in [
        ("moments", {"aggregator": GeometricMedian()}, spiked_sites),
        ("quantiles", {"aggregator": GeometricMedian()}, spiked_sites),
        ("fedpg", {"variant": "paper"}, spiked_sites),
        ("feddl", {"local_steps": 2}, spiked_sites),
        ("feddl", {"reduce": 3}, spiked_sites),
        ("feddl", {"reduce": 3, "device": "cpu"}, spiked_sites),
        ("landmark_distances", {"device": "cpu"}, spiked_sites),
        ("private_feddl", {"local_steps": 2}, spiked_sites),
        ("private_feddl", {"privacy": PaperNoise(0.1)}, spiked_sites),
        ("private_feddl", {"privacy": PaperNoise(0.1), "local_steps": 2}, spiked_sites),
        ("altgdmin", {}, whole_task_sites),
        ("moment_descent", {"perturbation": 0.1}, mixture_sites),
        ("logistic_fedx", {"aggregator": GeometricMedian(), "assignment": "hard"}, class_sites),
        ("best_random_start", {"loss": "logistic"}, class_sites),
        ("cluster_assignment", {"loss": "logistic"}, class_sites),
        ("describe", {"by": "proto", "categories": NAMES, "privacy": LEVELS}, mixed_sites),
        ("describe", {"by": None, "ranks": "exact"}, mixed_sites),
        ("histogram", {"by": None, "privacy": LEVELS}, mixed_sites),
        ("crosstab", {"categories": NAMES, "privacy": LEVELS}, mixed_sites),
        ("generalized_linear_model", {"cov_type": "nonrobust"}, separated_sites),
        ("target_classes", {}, named_sites),
        ("event_counts", {"times": None}, survival_sites),
        ("cox_model", {"stratified": True}, survival_sites),
    ]
]
