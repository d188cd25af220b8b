"""A site's cells: sparse counts, divided by each cell's total, and logarithms of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.parameters import Indices

#: Sites keep the logarithms of the chosen genes up to this size; they make larger ones again for every call.
_KEPT_BYTES = 2**30
_BLOCK_ROWS = 2048


def cells_of(site: Site) -> Any:
    """Return a site's table of cells, which has ``blocks`` of sparse rows and ``obs``."""
    frame = site.frame
    if frame is None or not hasattr(frame, "blocks"):
        raise InputError(
            f"site {site.name!r} has no table of cells: make the federation with fedspan.federate_anndata, and use it "
            "without any transform"
        )
    return frame


def scaled_blocks(cells: Any, target: float) -> Iterator[Any]:
    """Yield sparse rows (CSR) of counts, scaled so that those of each cell add up to `target`."""
    for counts in cells.blocks(_BLOCK_ROWS):
        rows = counts.astype(np.float64)
        rows.sum_duplicates()
        total = np.asarray(rows.sum(axis=1)).ravel()
        factor = target / np.where(total > 0.0, total, 1.0)
        rows.data *= np.repeat(factor, np.diff(rows.indptr))
        yield rows


def log_blocks(cells: Any, target: float, genes: NDArray[np.int64] | None = None) -> Iterator[Any]:
    """Yield sparse rows of ``log(1 + scaled count)`` of some genes, or of all."""
    for rows in scaled_blocks(cells, target):
        found = rows if genes is None else rows[:, genes]
        found.data = np.log1p(found.data)
        yield found


def refuse_unknown_genes(genes: Indices, wide: int) -> None:
    """Refuse numbers of genes that a site does not have."""
    if genes.size and not 0 <= genes.min() <= genes.max() < wide:
        raise InputError(f"genes have numbers from 0 to {wide - 1} here, and a requested one is not among them")


def kept_log_blocks(site: Site, target: float, genes: Indices) -> Iterator[Any]:
    """Yield the same of a site, which keeps what fits into memory."""
    cells = cells_of(site)
    refuse_unknown_genes(genes, cells.shape[1])
    key = (target, genes.tobytes())
    known = site.last_of("log counts", key, dict[str, list[Any]])
    if "blocks" in known:
        yield from known["blocks"]
        return
    made: list[Any] | None = []
    size = 0
    for rows in log_blocks(cells, target, genes):
        size += 12 * rows.nnz
        made = None if made is None or size > _KEPT_BYTES else [*made, rows]
        yield rows
    if made is not None:
        known["blocks"] = made
