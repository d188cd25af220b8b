"""One-shot clustering: every site fits its own model, k-means groups them, FedAvg runs inside the groups. A baseline.

A. Ghosh, J. Hong, D. Yin and K. Ramchandran, "Robust federated learning in a heterogeneous environment", 2019. Sites
with fewer rows than columns send the shortest solution, which is far from their model; their labels are never mended.
Up per site: d numbers, of which single ones are needed, then those of `fedx` with one model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import k_means
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.cluster_start import check_clusters
from fedspan.mixed_regression.parts.refinement import Matrix
from fedspan.mixed_regression.parts.regression_rows import rows_of
from fedspan.sums.plausible_totals import refuse_absurd


@step("mixed_regression.fit", reveals="sums")
def local_fit(site: Site) -> dict[str, Any]:
    """Leaves the site: the shortest least-squares model of its own rows (d,)."""
    rows = rows_of(site)
    return {"model": np.linalg.lstsq(rows.X, rows.y, rcond=None)[0]}


def one_shot_clustering(
    fed: Federation, *, n_clusters: int, **options: Any
) -> tuple[Matrix, NDArray[np.intp], tuple[str, ...]]:
    """Return the groups' models (k, d), the labels of the sites that answered, and their names.

    Options are those of `fedx`.
    """
    check_clusters(n_clusters, len(fed.sites))
    replies = fed.ask(local_fit)
    if len(replies) < n_clusters:
        raise InputError(f"only {len(replies)} sites answered, and n_clusters={n_clusters} needs as many at least")
    own = replies.stack("model")
    refuse_absurd(own)
    found = k_means(own, n_clusters, fed.rng, starts=5)
    names, models = np.array(list(replies)), found.centres.copy()
    for j in range(n_clusters):
        if (found.labels == j).any():
            group = fed.subset(names[found.labels == j].tolist())
            models[j] = fedx(group, models=np.zeros((1, models.shape[1])), **options).models[0]
    return models, found.labels, tuple(replies)
