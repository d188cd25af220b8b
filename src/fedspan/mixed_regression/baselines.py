"""Baselines of L. Su, J. Xu and P. Yang: IFCA, one-shot clustering, vanilla FedAvg, and an oracle's start.

All of them refine by `fedx`, whose options they take. Per site up: what `fedx` sends; `one_shot_clustering` also d
numbers, of which single ones are needed, and then those of `fedx` with one model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix
from fedspan.linalg import k_means
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.parts.regression_rows import rows_of
from fedspan.mixed_regression.random_start import random_start
from fedspan.sums.plausible_totals import refuse_absurd


@step("mixed_regression.fit", reveals="sums", moments=True)
def local_fit(site: Site) -> dict[str, Any]:
    """Leaves the site: the shortest least-squares model of its own rows (d,)."""
    rows = rows_of(site)
    return {"model": np.linalg.lstsq(rows.X, rows.y, rcond=None)[0]}


def ifca(
    fed: Federation, *, n_clusters: int, n_columns: int, scale: float = 1.0, weights: str = "total", **options: Any
) -> Refinement:
    """Return models (k, d) refined from one random start of length about `scale`.

    A. Ghosh, J. Chung, D. Yin and K. Ramchandran, "An efficient framework for clustered federated learning", NeurIPS
    2020, as Su, Xu and Yang compare with it: with the weights n_i / N by default.
    """
    start = random_start(fed, n_clusters=n_clusters, n_columns=n_columns, scale=scale)
    return fedx(fed, models=start.models, weights=weights, **options)


def oracle(fed: Federation, *, truth: Matrix, **options: Any) -> Refinement:
    """Return the `truth` (k, d) refined: a yardstick, since no algorithm can start from the true models."""
    return fedx(fed, models=truth, **options)


def vanilla_fedavg(fed: Federation, *, n_columns: int, **options: Any) -> Refinement:
    """Return one model (1, d) for all sites, whatever their clusters."""
    return fedx(fed, models=np.zeros((1, n_columns)), **options)


def one_shot_clustering(
    fed: Federation, *, n_clusters: int, **options: Any
) -> tuple[Matrix, NDArray[np.intp], tuple[str, ...]]:
    """Return the groups' models (k, d), the labels of the sites that replied, and their names.

    Every site fits its own model, k-means groups them, and FedAvg runs inside the groups (A. Ghosh, J. Hong, D. Yin and
    K. Ramchandran, "Robust federated learning in a heterogeneous environment", 2019). Sites with fewer rows than
    columns send the shortest solution, which is far from their model; their labels are never corrected.
    """
    whole_number("n_clusters", n_clusters, 1, len(fed.sites), why=", the number of sites")
    replies = fed.ask(local_fit)
    if len(replies) < n_clusters:
        raise InputError(f"only {len(replies)} sites replied: n_clusters={n_clusters} needs at least as many")
    own = replies.stack("model")
    refuse_absurd(own)
    found = k_means(own, n_clusters, fed.rng, starts=5)
    names, models = np.array(list(replies)), found.centres.copy()
    for j in range(n_clusters):
        if (found.labels == j).any():
            group = fed.subset(names[found.labels == j].tolist())
            models[j] = fedx(group, models=np.zeros((1, models.shape[1])), **options).models[0]
    return models, found.labels, tuple(replies)
