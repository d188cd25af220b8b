"""Marker genes: of each cluster the genes that differ most from all other cells, by Welch's t-test on federated sums.

The numbers are those of ``scanpy.tl.rank_genes_groups(method="t-test")`` on the pooled cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from fedspan.arrays import Floats
from fedspan.atlases.parts.batch_labels import codes_in, texts_of
from fedspan.atlases.parts.cell_rows import cells_of, log_blocks, refuse_unknown_genes
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Indices, Labels, Positive, Whole
from fedspan.sums.plausible_totals import not_negative, whole

Clusters = Annotated[int, Whole(1, 10_000)]


@dataclass(frozen=True)
class MarkerGenes:
    """Of each cluster and gene (C, G): t, p-value, p-value by Benjamini and Hochberg, log2 fold change, share of cells.

    `sizes` (C,) are the clusters' numbers of cells, `shares` those of cells in which a gene was found.
    """

    sizes: NDArray[np.int64]
    scores: Floats
    pvalues: Floats
    adjusted: Floats
    fold_changes: Floats
    shares: Floats

    def top(self, cluster: int, n: int = 10) -> NDArray[np.int64]:
        """Return the numbers of the genes with the largest t in a cluster."""
        return np.argsort(-self.scores[cluster], kind="stable")[:n]


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


def smallest_cluster(site: Site, clusters: int, names: Labels | None = None, **_: Any) -> int:
    """Return the number of cells of the smallest cluster that has any; only of labels it can be counted beforehand."""
    counts = np.bincount(_own_clusters(site, clusters, names))
    return int(counts[counts > 0].min(initial=len(site)))


@step("atlases.cluster_gene_counts", reveals="sums", fewest=smallest_cluster, fewest_in_sums=False)
def local_cluster_gene_counts(site: Site, clusters: Clusters, names: Labels | None = None) -> dict[str, Any]:
    """Leaves the site: by cluster and gene the number of cells with a count, and by cluster that of all cells.

    Clusters are those that the site has kept in this run, or its labels (``y``), `names`.
    """
    own, cells = _own_clusters(site, clusters, names), cells_of(site)
    found, at = np.zeros(clusters * cells.shape[1], dtype=np.int64), 0
    for rows in cells.blocks():
        rows.sum_duplicates()
        flat = np.repeat(own[at : at + rows.shape[0]], np.diff(rows.indptr)) * cells.shape[1] + rows.indices
        at += rows.shape[0]
        found += np.bincount(flat[rows.data > 0], minlength=len(found))
    return {"n": np.bincount(own, minlength=clusters), "found": found.reshape(clusters, cells.shape[1])}


@step("atlases.cluster_gene_sums", reveals="sums", fewest=smallest_cluster, fewest_in_sums=False)
def local_cluster_gene_sums(
    site: Site, target: Positive, clusters: Clusters, genes: Indices, together: Indices, names: Labels | None = None
) -> dict[str, Any]:
    """Leaves the site: by cluster and of some genes sum and squares of logarithms, some of them over several clusters.

    `together` are the numbers ``cluster * len(genes) + gene`` of sums that are 0 by cluster, and added up by gene.
    """
    own, cells = _own_clusters(site, clusters, names), cells_of(site)
    refuse_unknown_genes(genes, cells.shape[1])
    shape, at = (clusters, len(genes)), 0
    sums, squares = np.zeros(clusters * len(genes)), np.zeros(clusters * len(genes))
    if together.size and not 0 <= together.min() <= together.max() < sums.size:
        raise InputError(f"{clusters} clusters of {len(genes)} genes lack some of the requested sums")
    for rows in log_blocks(cells, target, genes):
        flat = np.repeat(own[at : at + rows.shape[0]], np.diff(rows.indptr)) * len(genes) + rows.indices
        at += rows.shape[0]
        sums += np.bincount(flat, rows.data, minlength=sums.size)
        squares += np.bincount(flat, rows.data**2, minlength=sums.size)
    reply: dict[str, Any] = {}
    for name, values in (("sums", sums), ("squares", squares)):
        reply[f"shared_{name}"] = np.bincount(together % max(1, len(genes)), values[together], minlength=len(genes))
        values[together] = 0.0
        reply[name] = values.reshape(shape)
    return reply


def marker_genes(
    fed: Federation,
    *,
    clusters: int,
    n_genes: int,
    target: float = 1e4,
    names: NDArray[np.str_] | None = None,
    least_cells: int = 5,
) -> MarkerGenes:
    """Compare each cluster with all other cells, by two sums.

    Clusters are those that the sites have kept in this run; or the labels of cells (``y`` of the sites), with `names`.
    The sum of a gene that one cell of a cluster has would be this cell's count. Where fewer than `least_cells` cells of
    a cluster have a gene, its sum is requested together with those of other clusters. Each gets a part of it, by its
    number of cells that have the gene. Genes that fewer cells have at all are not tested.
    """
    shape = (clusters, n_genes)
    first = whole(fed.sum(local_cluster_gene_counts, clusters=clusters, names=names), n=(clusters,), found=shape)
    found = not_negative(first, "n", "found")["found"]
    genes = np.flatnonzero(found.sum(axis=0) >= least_cells).astype(np.int64)
    own = found[:, genes]
    shared = few_together(own, least_cells)
    more: dict[str, Any] = {"genes": genes, "together": np.flatnonzero(shared).astype(np.int64), "names": names}
    total = fed.sum(local_cluster_gene_sums, target=target, clusters=clusters, **more)
    whole(total, sums=own.shape, squares=own.shape, shared_sums=genes.shape, shared_squares=genes.shape)
    not_negative(total, "sums", "squares", "shared_sums", "shared_squares")
    parts = np.where(shared, own, 0) / np.maximum(np.where(shared, own, 0).sum(axis=0), 1)
    sums, squares = np.zeros(shape), np.zeros(shape)
    sums[:, genes] = total["sums"] + parts * total["shared_sums"]
    squares[:, genes] = total["squares"] + parts * total["shared_squares"]
    return tested(first["n"], sums, squares, found)


def few_together(found: NDArray[Any], least: int) -> NDArray[np.bool_]:
    """Return for which clusters and genes (C, G) sums are requested together, given the numbers of cells `found`.

    Those of 1 to ``least - 1`` cells, and of the same gene the smallest others, until `least` cells are together.

    Examples
    --------
    >>> few_together(np.array([[1, 9, 0], [7, 9, 8], [6, 0, 3]]), 5).astype(int).tolist()
    [[1, 0, 0], [0, 0, 1], [1, 0, 1]]
    """
    few = (found > 0) & (found < least)
    order = np.argsort(np.where(found > 0, found, np.iinfo(np.int64).max), axis=0, kind="stable")
    ranked = np.take_along_axis(found, order, axis=0)
    before = np.cumsum(ranked, axis=0) - ranked
    together = np.zeros_like(few)
    np.put_along_axis(together, order, (before < least) & (ranked > 0), axis=0)
    return (few | together) & few.any(axis=0)


def tested(n: NDArray[Any], sums: Floats, squares: Floats, found: Floats) -> MarkerGenes:
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


def _moments(n: Floats, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    mean = sums / np.maximum(n, 1.0)
    return mean, np.maximum(squares - n * mean**2, 0.0) / np.maximum(n - 1.0, 1.0)


def _adjusted(p: Floats) -> Floats:
    """Return p-values for many tests, by Benjamini and Hochberg."""
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    found = np.empty_like(p)
    found[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return found
