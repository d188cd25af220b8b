"""The pull of a site's rows at landmarks, on the site's processor or on its graphics card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Site
from fedspan.linalg.array_backend import device_here, to_device
from fedspan.linalg.kernels.gaussian_kernel import kernel_pull, squared_norms
from fedspan.sums.row_blocks import n_columns

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: Sites keep rows that were prepared for the products, up to this size; larger ones are prepared anew in every round.
_KEPT_BYTES = 2**30
_BATCH_ROWS = 8192


def rows_pull(site: Site, Y: Array, gamma: float, device: str = "", within: float = np.inf) -> tuple[Matrix, float]:
    """Return ``sum_i k(x_i, y_j) (x_i - y_j)`` (n_y, m) over the site's rows, and the sum of their kernel values.

    Parameters
    ----------
    device : str
        As torch names it; a site that does not have it, or none is named, uses numpy.
    within : float
        Rows of a larger norm, or of none, count for nothing; all are taken in the precision of Y.
    """
    here = device_here(device or None)
    landmarks = to_device(Y, here)
    pull, total = np.zeros(Y.shape), 0.0
    for X, norms in rows_and_norms(site, here, None if within == np.inf else Y.dtype):
        near = norms <= within**2
        more, kernel = kernel_pull(X, landmarks, gamma, norms) if near.all() else kernel_pull(X[near], landmarks, gamma)
        pull += more
        total += kernel
    return pull, total


def rows_and_norms(site: Site, device: str | None = None, kind: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield the site's rows, as numbers of `kind`, and their squared norms: at once where they were kept."""
    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        yield site.cached(f"rows and norms on {device} as {kind}", lambda: _moved(site.X, device, kind))
    else:
        for batch in site.batches(_BATCH_ROWS):
            yield _moved(batch.X, device, kind)


def _moved(X: Array, device: str | None, kind: Any) -> tuple[Any, Any]:
    moved = to_device(X if kind is None else X.astype(kind, copy=False), device)
    return moved, squared_norms(moved)
