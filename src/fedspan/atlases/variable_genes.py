"""Highly variable genes from federated moments, as scanpy chooses them with ``flavor="seurat"``.

After Satija et al. (Nature Biotechnology 2015): genes are put into bins by their mean, and those are chosen whose
dispersion is large beside the others of their bin. Mean and variance of scaled counts are sums: the choice is that of
the pooled cells.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Vector
from fedspan.atlases.parts.cell_rows import cells_of, refuse_unknown_genes, scaled_blocks
from fedspan.checks import frames_inside
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Indices, Positive
from fedspan.sums.plausible_totals import not_negative, whole

_BINS = 20


@dataclass(frozen=True)
class GeneMoments:
    """Number of cells, and of each gene (G,): mean and variance of scaled counts, mean of their logarithms.

    They are 0 for genes that too few cells have, which are not `known`.
    """

    n: int
    mean: Vector
    variance: Vector
    log_mean: Vector
    known: NDArray[np.bool_]


@dataclass(frozen=True)
class VariableGenes:
    """The numbers of the chosen genes, sorted, and of all genes the means, dispersions and normalised dispersions."""

    chosen: NDArray[np.int64]
    means: Vector
    dispersions: Vector
    normalised: Vector


@step("atlases.gene_counts", reveals="sums", counts=["n"])
def local_gene_counts(site: Site) -> dict[str, Any]:
    """Leaves the site: of each gene its number of cells with a count; the numbers of cells, bad values and fractions.

    Bad values are negative, or not finite.
    """
    cells = cells_of(site)
    found, bad, fractions = np.zeros(cells.shape[1], dtype=np.int64), 0, 0
    for counts in cells.blocks():
        counts.sum_duplicates()
        bad += int((~(np.isfinite(counts.data) & (counts.data >= 0))).sum())
        fractions += int((counts.data != np.floor(counts.data)).sum()) if counts.data.dtype.kind == "f" else 0
        found += np.bincount(counts.indices[counts.data > 0], minlength=len(found))
    return {"n": len(site), "bad": bad, "fractions": fractions, "found": found}


@step("atlases.gene_sums", reveals="sums")
def local_gene_sums(site: Site, target: Positive, genes: Indices) -> dict[str, Any]:
    """Leaves the site: of some genes sum, squares and logarithms of scaled counts."""
    cells = cells_of(site)
    refuse_unknown_genes(genes, cells.shape[1])
    sums, squares, logs = (np.zeros(cells.shape[1]) for _ in range(3))
    for rows in scaled_blocks(cells, target):
        sums += np.asarray(rows.sum(axis=0)).ravel()
        logs += np.bincount(rows.indices, np.log1p(rows.data), minlength=len(logs))
        squares += np.bincount(rows.indices, rows.data**2, minlength=len(squares))
    return {"sums": sums[genes], "squares": squares[genes], "logs": logs[genes]}


def gene_moments(fed: Federation, *, n_genes: int, target: float = 1e4, least_cells: int = 5) -> GeneMoments:
    """Return the moments of the genes that at least `least_cells` cells have, by two sums.

    The sum of a gene that one cell has would be this cell's count.
    """
    first = whole(fed.sum(local_gene_counts), n=(), bad=(), fractions=(), found=(n_genes,))
    if first["bad"]:
        raise InputError(
            f"{first['bad']} values are negative or not finite, and counts are needed: name the layer that holds them, "
            "federate_anndata(..., layer='counts')"
        )
    if first["fractions"] > first["found"].sum() / 2:
        warnings.warn(
            "most values are not whole numbers, and counts are needed: of logarithms, logarithms would be taken again. "
            "Name the layer that holds the counts, federate_anndata(..., layer='counts')",
            stacklevel=frames_inside(),
        )
    n = int(first["n"])
    if n < 2:
        raise InputError(f"{n} cells are too few")
    genes = np.flatnonzero(first["found"] >= least_cells).astype(np.int64)
    if not len(genes):
        raise InputError(f"no gene has counts in least_cells={least_cells} cells: are these counts of cells?")
    shape = genes.shape
    total = whole(fed.sum(local_gene_sums, target=target, genes=genes), sums=shape, squares=shape, logs=shape)
    not_negative(total, "sums", "squares", "logs")
    mean, variance, logs = (np.zeros(n_genes) for _ in range(3))
    mean[genes], logs[genes] = total["sums"] / n, total["logs"] / n
    variance[genes] = np.maximum(total["squares"] - n * mean[genes] ** 2, 0.0) / (n - 1)
    known = (first["found"] >= least_cells) | (least_cells == 1)  # without a guard all genes count, as in scanpy
    return GeneMoments(n, mean, variance, logs, known)


def variable_genes(found: GeneMoments, n_top: int) -> VariableGenes:
    """Choose the `n_top` of the known genes whose dispersion is largest beside genes of a similar mean."""
    mean = np.where(found.mean == 0.0, 1e-12, found.mean)
    dispersion = found.variance / mean
    some = (dispersion > 0.0) & found.known
    logs = np.log(np.where(some, dispersion, 1.0))
    means = np.log1p(mean)
    low, high = float(means[found.known].min()), float(means[found.known].max())
    edges = np.linspace(low, high, _BINS + 1) if high > low else np.array([low - 1.0, low + 1.0])
    bins = np.clip(np.searchsorted(edges, means, side="left") - 1, 0, len(edges) - 2)
    normalised = np.full(len(means), -np.inf)
    for one in np.unique(bins[some]):
        mine = (bins == one) & some
        centre = float(logs[mine].mean())
        spread = float(logs[mine].std(ddof=1)) if mine.sum() > 1 else 0.0
        if spread > 0.0:
            normalised[mine] = (logs[mine] - centre) / spread
        else:  # as scanpy: a gene alone in its bin has the normalised dispersion 1
            normalised[mine] = 1.0
    order = np.argsort(-normalised, kind="stable")
    chosen = np.sort(order[: min(n_top, int(some.sum()))])
    if not len(chosen):
        raise InputError("no gene varies: are these counts of cells?")
    return VariableGenes(chosen.astype(np.int64), means, np.where(some, logs, np.nan), normalised)
