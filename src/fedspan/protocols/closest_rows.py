"""A site's rows in blocks, with the numbers of their closest centres."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Site
from fedspan.linalg.closest import closest
from fedspan.protocols.blocks import n_columns

Matrix = NDArray[np.float64]

#: Rows as the lenses show them are kept at a site up to this size; larger ones are made anew for every call.
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


def _blocks(site: Site, rows: int) -> Iterator[Matrix]:
    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        X = site.X
        for start in range(0, len(site), rows):
            yield np.asarray(X[start : start + rows], dtype=np.float64)
    else:
        for batch in site.batches(rows):
            yield np.asarray(batch.X, dtype=np.float64)
