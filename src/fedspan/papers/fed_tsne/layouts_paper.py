"""From neighbours to maps: the same libraries and settings for pooled rows and for rows known by landmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.engines.local.embedded import LocalFederation
from fedspan.federation import Federation, Site
from fedspan.landmarks.parts.neighbor_search import find_neighbors
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.layout.map_quality import plain_distances
from fedspan.maps.parts.map_estimator import FedMap, principal_positions
from fedspan.maps.tsne import FedTSNE
from fedspan.maps.umap import FedUMAP

Array = NDArray[Any]
FACES: dict[str, type[FedMap]] = {"t-SNE": FedTSNE, "UMAP": FedUMAP}
#: Neighbours of each row that t-SNE asks for by default, and more than any measure does.
NEIGHBORS = 90


@contextmanager
def coordinator(seed: int = 0) -> Iterator[Federation]:
    """Open a federation that gives a layout its random numbers and records its progress."""
    with LocalFederation([Site("none", np.zeros((1, 1)))]).begin("layout", seed=seed) as fed:
        yield fed


def neighbors_of(rows: LowRankDistances, k: int = NEIGHBORS) -> tuple[Array, Array]:
    """Return the nearest neighbours of each row and their distances (n, k)."""
    with coordinator() as fed:
        return find_neighbors(fed, rows, min(k, len(rows) - 1), "exact")


def laid_out(
    face: str, indices: Array, distances: Array, coordinates: Array, mirror: tuple[int, int] = (1, 1)
) -> Array:
    """Return the map (n, 2) by ``"t-SNE"`` or ``"UMAP"`` with default settings, from neighbours.

    Parameters
    ----------
    indices, distances : array (n, k)
        At least as many neighbours as the face wants.
    coordinates : array (n, r)
        Whose principal components are the start; `mirror` turns these about.
    """
    model = FACES[face]()
    k = model._n_neighbors(len(indices))
    with coordinator() as fed:
        start = principal_positions(coordinates, 2, fed.rng) * mirror
        return np.asarray(model._layout(fed, indices[:, :k], distances[:, :k], start), dtype=np.float64)


class Pooled:
    """Rows in one place: their true neighbours, and maps of them."""

    def __init__(self, X: Array, k: int = NEIGHBORS) -> None:
        self.rows = plain_distances(X)
        self.indices, self.distances = neighbors_of(self.rows, k)

    def maps(self, faces: Iterable[str]) -> dict[str, Array]:
        """Return a map by each of the faces."""
        return {face: laid_out(face, self.indices, self.distances, self.rows.factor) for face in faces}
