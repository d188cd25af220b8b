"""A site's rows in blocks, with the numbers of their closest centres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedspan.federation import Site
from fedspan.linalg.kernels.nearest_centres import closest, squared_apart
from fedspan.sums.row_blocks import n_columns

Matrix = NDArray[np.float64]

#: Rows as the transforms show them are kept at a site up to this size; larger ones are made anew for every call.
_KEPT_BYTES = 2**30
_BLOCK_BYTES = 2**23


def labelled(site: Site, centres: Matrix) -> Iterator[tuple[Matrix, NDArray[np.int32]]]:
    """Yield blocks of rows with the numbers of their closest centres; never more than a block's distances at once.

    The numbers of the last centres are remembered: both sums of a round need them. They are a function of rows and
    centres, and are computed again where they were forgotten.
    """
    memory: dict[bytes, NDArray[np.int32]] = site.cached("closest centres", dict)
    b, k, d = centres.shape
    rows = max(16, _BLOCK_BYTES // (8 * max(d, b * k)))
    key = centres.tobytes()
    labels = memory.get(key)
    fresh = labels is None
    if labels is None:
        labels = np.empty((len(site), b), dtype=np.int32)
    at = 0
    for X in _blocks(site, rows):
        part = slice(at, at + len(X))
        if fresh:
            labels[part] = closest(X, centres)
        yield X, labels[part]
        at = part.stop
    memory.clear()
    memory[key] = labels


class SumsByCentre(NamedTuple):
    """Of the rows closest to each of b k centres: sum (b k, d), number and squared distances (b k,); whose is each row.

    `labels` (n, b) are the numbers of the closest centres.
    """

    sums: Matrix
    counts: NDArray[np.int64]
    spread: Matrix
    labels: NDArray[np.int32]

    def of(self, wanted: NDArray[np.bool_]) -> dict[str, NDArray[np.generic]]:
        """Return what leaves a site of the `wanted` centres (b, k)."""
        asked = wanted.ravel()
        return {"sums": self.sums[asked], "counts": self.counts[asked], "spread": self.spread[asked]}


def sums_by_centre(site: Site, centres: Matrix) -> SumsByCentre:
    """Add up the rows closest to each centre."""
    b, k, d = centres.shape
    sums, counts, spread = np.zeros((b * k, d)), np.zeros(b * k, dtype=np.int64), np.zeros(b * k)
    whose = [np.empty((0, b), dtype=np.int32)]
    for X, labels in labelled(site, centres):
        cells = (labels + k * np.arange(b)).ravel()
        rows = np.repeat(np.arange(len(X)), b)
        sums += csr_array((np.ones(len(cells)), (cells, rows)), shape=(b * k, len(X))) @ X
        counts += np.bincount(cells, minlength=b * k)
        spread += np.bincount(cells, squared_apart(X, centres, labels).ravel(), minlength=b * k)
        whose.append(labels)
    return SumsByCentre(sums, counts, spread, np.concatenate(whose))


def _blocks(site: Site, rows: int) -> Iterator[Matrix]:
    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        X = site.X
        for start in range(0, len(site), rows):
            yield np.asarray(X[start : start + rows], dtype=np.float64)
    else:
        for batch in site.batches(rows):
            yield np.asarray(batch.X, dtype=np.float64)


def of_centres(site: Site, *, centres: NDArray[Any], **_: Any) -> int:
    """Return how many rows there are for each centre: some centre has no more than that."""
    return len(site) // max(1, int(centres.shape[-2]))
