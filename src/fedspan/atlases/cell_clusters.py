"""Clusters of cells by Leiden's algorithm on the centres of a k-means codebook: cells stay at their sites.

Centres are tied by the cells that lie between them. Each cell ties its two closest centres (the competitive Hebbian
rule of Martinetz and Schulten, 1994). The number of cells of each tie is a sum. Leiden (Traag et al., Scientific
Reports 2019) then finds communities of centres, and a cell belongs to that of its closest centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from fedspan.arrays import Floats
from fedspan.clustering.parts.rows_by_centre import closest_labels
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Indices, Matrix
from fedspan.sums.plausible_totals import sum_of_all, whole

_BLOCK_NUMBERS = 2**20


@dataclass(frozen=True)
class CellClusters:
    """The community (k,) of each centre, largest first, and the ties (k, k) between centres."""

    of_centre: NDArray[np.int64]
    ties: Floats


@step("atlases.code_ties", reveals="sums")
def local_code_ties(site: Site, centres: Matrix) -> dict[str, Any]:
    """Leaves the site: for each two centres the number of its rows to which they are the two closest, (k, k)."""
    k = len(centres)
    first, second = two_closest(site.X, centres)
    found = coo_array((np.ones(len(first), dtype=np.int64), (first, second)), shape=(k, k)).toarray()
    return {"ties": found}


@step("atlases.keep_clusters", reveals="sums", counts=["n"])
def local_keep_clusters(site: Site, centres: Matrix, of_centre: Indices) -> dict[str, Any]:
    """Leaves the site: its number of rows. For later steps of the run it keeps the cluster of each row."""
    if len(of_centre) != len(centres):
        raise InputError(f"{len(centres)} centres have {len(of_centre)} clusters, and must have one each")
    site.state["cluster"] = of_centre[closest_labels(site.X, centres)].astype(np.int32)
    return {"n": len(site)}


def two_closest(X: Any, centres: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the closest and the second closest centre of each row."""
    k, shift = len(centres), centres.mean(axis=0)
    C = centres - shift
    lengths = np.vecdot(C, C)
    found = np.empty((len(X), 2), dtype=np.int64)
    rows = max(16, _BLOCK_NUMBERS // k)
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        apart = lengths - 2.0 * (np.asarray(X[part], dtype=np.float64) - shift) @ C.T
        near = np.argpartition(apart, 1, axis=1)[:, :2] if k > 2 else np.tile(np.arange(k)[-2:], (len(apart), 1))
        distances = np.take_along_axis(apart, near, axis=1)
        found[part] = np.take_along_axis(near, np.argsort(distances, axis=1, kind="stable"), axis=1)
    return found[:, 0], found[:, 1]


def cell_clusters(fed: Federation, *, centres: Floats, resolution: float = 1.0) -> CellClusters:
    """Return the communities of `centres` (k, d), at least two of them, by Leiden's algorithm.

    Sites keep the cluster of each row for later steps of the run.
    """
    k = len(centres)
    found = whole(fed.sum(local_code_ties, centres=centres), ties=(k, k))["ties"].astype(np.float64)
    ties = np.maximum(found + found.T, 0.0)
    of_centre = _communities(ties, resolution, int(fed.rng.integers(2**31)))
    sum_of_all(fed, local_keep_clusters, centres=centres, of_centre=of_centre)
    return CellClusters(of_centre, ties)


def _communities(ties: Floats, resolution: float, seed: int) -> NDArray[np.int64]:
    try:
        import igraph
        import leidenalg
    except ImportError:
        raise MissingPackageError(
            "Leiden's clusters need leidenalg and igraph: pip install '.[atlas]' in a checkout"
        ) from None
    first, second = np.nonzero(np.triu(ties, 1))
    graph = igraph.Graph(n=len(ties), edges=list(zip(first.tolist(), second.tolist(), strict=True)))
    found = leidenalg.find_partition(
        graph,
        leidenalg.RBConfigurationVertexPartition,
        weights=ties[first, second].tolist(),
        resolution_parameter=resolution,
        n_iterations=-1,
        seed=seed,
    )
    member = np.array(found.membership, dtype=np.int64)
    # By their ties, largest first; of equal ones the first centre decides.
    sizes = np.bincount(member, ties.sum(axis=1))
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[member]
