"""Highly variable genes from federated moments, as scanpy chooses them with ``flavor="seurat"``.

After Satija et al. (Nature Biotechnology 2015): genes are put into bins by their mean, and those are chosen whose
dispersion is large beside the others of their bin. Mean and variance of scaled counts are sums: the choice is that of
the pooled cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.atlases.parts.cell_rows import cells_of, scaled_blocks
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Positive
from fedspan.sums.plausible_totals import not_negative, whole

Vector = NDArray[np.float64]

_BINS = 20


@dataclass(frozen=True)
class GeneMoments:
    """Number of cells, and of each gene (G,): mean and variance of scaled counts, mean of their logarithms."""

    n: int
    mean: Vector
    variance: Vector
    log_mean: Vector


@dataclass(frozen=True)
class VariableGenes:
    """The numbers of the chosen genes, sorted, and of all genes the means, dispersions and normalised dispersions."""

    chosen: NDArray[np.int64]
    means: Vector
    dispersions: Vector
    normalised: Vector


@step("atlases.gene_sums", reveals="sums", counts=["n"])
def local_gene_sums(site: Site, target: Positive) -> dict[str, Any]:
    """Leaves the site: of each gene sum and squares of its scaled counts, sum of their logarithms; numbers of cells.

    Also how many values are no counts: negative, or not finite.
    """
    cells = cells_of(site)
    sums, squares, logs = (np.zeros(cells.shape[1]) for _ in range(3))
    bad = 0
    for counts in cells.blocks():
        bad += int((~(np.isfinite(counts.data) & (counts.data >= 0))).sum())
    if not bad:
        for rows in scaled_blocks(cells, target):
            sums += np.asarray(rows.sum(axis=0)).ravel()
            logs += np.bincount(rows.indices, np.log1p(rows.data), minlength=len(logs))
            squares += np.bincount(rows.indices, rows.data**2, minlength=len(squares))
    return {"n": len(site), "bad": bad, "sums": sums, "squares": squares, "logs": logs}


def gene_moments(fed: Federation, *, n_genes: int, target: float = 1e4) -> GeneMoments:
    """Return the moments of all genes, by one sum."""
    shape = (n_genes,)
    total = fed.sum(local_gene_sums, target=target)
    not_negative(whole(total, n=(), bad=(), sums=shape, squares=shape, logs=shape), "sums", "squares", "logs")
    if total["bad"]:
        raise InputError(
            f"{total['bad']} values are negative or not finite, and counts are needed: name the layer that holds them, "
            "federate_anndata(..., layer='counts')"
        )
    n = int(total["n"])
    if n < 2:
        raise InputError(f"{n} cells are too few")
    mean = total["sums"] / n
    variance = np.maximum(total["squares"] - n * mean**2, 0.0) / (n - 1)
    return GeneMoments(n, mean, variance, total["logs"] / n)


def variable_genes(found: GeneMoments, n_top: int) -> VariableGenes:
    """Choose the `n_top` genes whose dispersion is largest beside genes of a similar mean."""
    mean = np.where(found.mean == 0.0, 1e-12, found.mean)
    dispersion = found.variance / mean
    some = dispersion > 0.0
    logs = np.log(np.where(some, dispersion, 1.0))
    means = np.log1p(mean)
    low, high = float(means.min()), float(means.max())
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
