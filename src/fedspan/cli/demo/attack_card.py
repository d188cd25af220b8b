"""Card: a third of the sites is malicious. The mean fails, the median holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedspan.arrays import Array
from fedspan.cli.demo.image_rows import image_rows
from fedspan.datasets import load_digits
from fedspan.engines.local.embedded import federate
from fedspan.pca.estimator import FedPCA
from fedspan.report import write_report
from fedspan.report.cards_page import Card

SITES, MALICIOUS, COMPONENTS = 9, ("site-2", "site-5", "site-8"), 10
LINES = """
import numpy as np, fedspan as fs
from fedspan.datasets import load_digits

X, site = load_digits().data.astype(float), np.arange(1797) % 9
false, edge = np.isin(site, [2, 5, 8]), np.arange(64) % 8 % 7 == 0
sent = X + 100 * np.random.default_rng(0).normal(size=X.shape) \\
    * np.outer(false, edge)  # three of nine sites falsify 16 pixels
for solver in ("covariance", "subspace_median"):  # a mean, a median
    pca = fs.FedPCA(10, solver=solver).fit(sent, sites=site)
    print(solver, "keeps", np.var(pca.transform(X), axis=0).sum())
"""


def attack_card(folder: Path, seed: int) -> Card:
    """Fit by means and by a median under the same attack, and write the report of both."""
    digits = load_digits()
    X = digits.data.astype(float)
    sites = np.array([f"site-{i % SITES}" for i in range(len(X))])
    attacked = federate(false_rows(X, np.isin(sites, MALICIOUS), seed), sites=sites, seed=seed)
    truth = FedPCA(COMPONENTS, random_state=seed).fit(X, sites=sites)
    mean = FedPCA(COMPONENTS, solver="covariance", random_state=seed).fit(attacked)
    median = FedPCA(COMPONENTS, solver="subspace_median", random_state=seed).fit(attacked)
    settings = {
        "data": "scikit-learn's digits, nine sites",
        "attack": f"large false values in the pixels of two edges, at {', '.join(MALICIOUS)}",
        "runs": "by means, then by the median of subspaces",
        "seed": str(seed),
    }
    records = [mean.run_, median.run_]
    title = "Three of nine sites are malicious"
    write_report(folder / "report.html", title=title, records=records, models=[median], settings=settings, image=(8, 8))
    kept = [share_kept(X, model.components_, truth.components_) for model in (mean, median)]
    shown = np.array([np.flatnonzero(digits.target == d)[3] for d in (0, 1, 3, 5, 6, 8)])
    images = [X[shown], *(seen_through(X[shown], model.components_, X.mean(axis=0)) for model in (mean, median))]
    return Card(
        "attack",
        "Malicious sites",
        "Three of nine sites send false numbers. The mean fails, the median holds.",
        image_rows(
            ["images", "as the mean sees them", "as the median sees them"], images, "images, seen by two models"
        ),
        f"{kept[1]:.0%}",
        f"of what ten components can keep is kept by the median, and {kept[0]:.0%} by the mean",
        "attack/report.html",
        LINES,
    )


def false_rows(X: Array, false: Array, seed: int) -> Array:
    """Return images (n, 64) of which the `false` ones (n,) have large random values in the pixels of two edges."""
    edge = np.arange(X.shape[1]) % 8 % 7 == 0
    return np.asarray(X + 100 * np.random.default_rng(seed).normal(size=X.shape) * np.outer(false, edge))


def share_kept(X: Array, components: Array, truth: Array) -> float:
    """Return the variance along components (k, d), as a share of that along the true ones."""
    centred = X - X.mean(axis=0)
    return float(np.sum((centred @ components.T) ** 2) / np.sum((centred @ truth.T) ** 2))


def seen_through(X: Array, components: Array, mean: Array) -> Array:
    """Return what components (k, d) keep of rows."""
    return np.asarray(mean + (X - mean) @ components.T @ components)
