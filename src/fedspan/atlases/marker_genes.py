"""Marker genes: of each cluster the genes that differ most from all other cells, by Welch's t-test on federated sums.

The numbers are those of ``scanpy.tl.rank_genes_groups(method="t-test")`` on the pooled cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from fedspan.atlases.parts.batch_labels import codes_in, texts_of
from fedspan.atlases.parts.cell_rows import cells_of, log_blocks
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Labels, Positive, Whole
from fedspan.sums.plausible_totals import not_negative, whole

Array = NDArray[np.float64]
Clusters = Annotated[int, Whole(1, 10_000)]


@dataclass(frozen=True)
class MarkerGenes:
    """Of each cluster and gene (C, G): t, p-value, p-value by Benjamini and Hochberg, log2 fold change, share of cells.

    `sizes` (C,) are the clusters' numbers of cells, `shares` those of cells in which a gene was found.
    """

    sizes: NDArray[np.int64]
    scores: Array
    pvalues: Array
    adjusted: Array
    fold_changes: Array
    shares: Array

    def top(self, cluster: int, n: int = 10) -> NDArray[np.int64]:
        """Return the numbers of the genes with the largest t in a cluster."""
        return np.argsort(-self.scores[cluster], kind="stable")[:n]


@step("atlases.cluster_gene_sums", reveals="sums")
def local_cluster_gene_sums(
    site: Site, target: Positive, clusters: Clusters, names: Labels | None = None
) -> dict[str, Any]:
    """Leaves the site: for each cluster and gene sum and squares of logarithms, and the number of cells that have it.

    Also the number of cells of each cluster: those that the site has kept in this run, or its labels (``y``), `names`.
    """
    own, cells = _own_clusters(site, clusters, names), cells_of(site)
    shape, at = (clusters, cells.shape[1]), 0
    sums, squares, found = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for rows in log_blocks(cells, target):
        mine = own[at : at + rows.shape[0]]
        at += rows.shape[0]
        flat = np.repeat(mine, np.diff(rows.indptr)) * shape[1] + rows.indices
        sums += np.bincount(flat, rows.data, minlength=sums.size).reshape(shape)
        squares += np.bincount(flat, rows.data**2, minlength=sums.size).reshape(shape)
        found += np.bincount(flat, rows.data > 0.0, minlength=sums.size).reshape(shape)
    return {"n": np.bincount(own, minlength=clusters), "sums": sums, "squares": squares, "found": found}


def _own_clusters(site: Site, clusters: int, names: NDArray[np.str_] | None) -> NDArray[np.int64]:
    if names is not None:
        if site.y is None or len(names) != clusters:
            raise InputError(f"{len(names)} labels of {clusters} clusters, and the site's cells must have labels as y")
        return codes_in(texts_of(np.asarray(site.y)), names)
    if "cluster" not in site.state:
        raise InputError("this site missed the clusters of this run")
    own = np.asarray(site.state["cluster"], dtype=np.int64)
    if own.max(initial=0) >= clusters:
        raise InputError(f"this site has cells of cluster {own.max()}, and {clusters} clusters were requested")
    return own


def marker_genes(
    fed: Federation, *, clusters: int, n_genes: int, target: float = 1e4, names: NDArray[np.str_] | None = None
) -> MarkerGenes:
    """Compare each cluster with all other cells, by one sum.

    Clusters are those that the sites have kept in this run; or the labels of cells (``y`` of the sites), with `names`.
    """
    shape = (clusters, n_genes)
    total = fed.sum(local_cluster_gene_sums, target=target, clusters=clusters, names=names)
    whole(total, n=(clusters,), sums=shape, squares=shape, found=shape)
    not_negative(total, "n", "sums", "squares", "found")
    return tested(total["n"], total["sums"], total["squares"], total["found"])


def tested(n: NDArray[Any], sums: Array, squares: Array, found: Array) -> MarkerGenes:
    """Return the tests of clusters of `n` (C,) cells, from sums and squares (C, G) of their values."""
    sizes = np.asarray(n, dtype=np.float64)[:, None]
    own = _moments(sizes, sums, squares)
    rest = _moments(sizes.sum() - sizes, sums.sum(axis=0) - sums, squares.sum(axis=0) - squares)
    a, b = own[1] / np.maximum(sizes, 1.0), rest[1] / np.maximum(sizes.sum() - sizes, 1.0)
    some = a + b > 0.0
    error = np.sqrt(np.where(some, a + b, 1.0))
    t = np.where(some, (own[0] - rest[0]) / error, 0.0)
    below = a**2 / np.maximum(sizes - 1.0, 1.0) + b**2 / np.maximum(sizes.sum() - sizes - 1.0, 1.0)
    freedom = np.where(below > 0.0, (a + b) ** 2 / np.where(below > 0.0, below, 1.0), 1.0)
    p = np.where(some, 2.0 * stdtr(freedom, -np.abs(t)), 1.0)
    change = np.log2((np.expm1(own[0]) + 1e-9) / (np.expm1(rest[0]) + 1e-9))
    return MarkerGenes(
        np.asarray(n, dtype=np.int64),
        t,
        p,
        np.stack([_adjusted(one) for one in p]),
        change,
        found / np.maximum(sizes, 1),
    )


def _moments(n: Array, sums: Array, squares: Array) -> tuple[Array, Array]:
    mean = sums / np.maximum(n, 1.0)
    return mean, np.maximum(squares - n * mean**2, 0.0) / np.maximum(n - 1.0, 1.0)


def _adjusted(p: Array) -> Array:
    """Return p-values for many tests, by Benjamini and Hochberg."""
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    found = np.empty_like(p)
    found[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return found
