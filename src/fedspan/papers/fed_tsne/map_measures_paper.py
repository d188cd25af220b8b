"""The paper's measures of a map: CA, NPA, NMI and SC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score, silhouette_score

from fedspan.linalg.layout.map_quality import map_neighbors, shared_neighbors

Array = NDArray[Any]

#: Neighbours by which accuracy and preservation are measured.
NEIGHBORS = (1, 10, 50)
#: Rows of which the silhouette coefficient is taken: it needs all distances between them.
SILHOUETTE_ROWS = 4000


@dataclass(frozen=True)
class Quality:
    """How good a map is; `accuracy` (CA) and `preserved` (NPA) by 1, 10 and 50 neighbours.

    CA is the accuracy of leave-one-out votes of the nearest rows on the map, NPA the share of a row's true neighbours
    that are its neighbours on the map; NMI and SC are those of k-means on the map, with as many clusters as classes.
    """

    accuracy: tuple[float, ...]
    preserved: tuple[float, ...]
    nmi: float
    silhouette: float

    def values(self) -> tuple[float, ...]:
        """Return all in the order of the paper's tables."""
        return *self.accuracy, *self.preserved, self.nmi, self.silhouette


#: What `Quality.values` has.
NAMES = (*(f"CA{k}" for k in NEIGHBORS), *(f"NPA{k}" for k in NEIGHBORS), "NMI", "SC")


def quality(Z: Array, y: Array, truth: Array) -> Quality:
    """Measure a map Z (n, 2) of rows with classes y and true neighbours (n, 50 or more)."""
    found = map_neighbors(Z, max(NEIGHBORS))
    clusters = KMeans(int(y.max()) + 1, n_init=10, random_state=0).fit(Z).labels_
    size = min(len(Z), SILHOUETTE_ROWS)
    return Quality(
        tuple(vote_accuracy(found[:, :k], y) for k in NEIGHBORS),
        tuple(shared_neighbors(found[:, :k], truth[:, :k]) for k in NEIGHBORS),
        float(normalized_mutual_info_score(y, clusters)),
        float(silhouette_score(Z, clusters, sample_size=size, random_state=0)),
    )


def vote_accuracy(found: Array, y: Array) -> float:
    """Return how often most of a row's neighbours (n, k) have its class.

    Examples
    --------
    >>> vote_accuracy(np.array([[1, 2], [0, 2], [0, 1]]), np.array([0, 0, 1]))
    0.6666666666666666
    """
    votes = np.zeros((len(y), int(y.max()) + 1), dtype=np.int32)
    np.add.at(votes, (np.arange(len(y))[:, None], y[found]), 1)
    return float(np.mean(votes.argmax(axis=1) == y))
