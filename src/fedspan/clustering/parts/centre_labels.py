"""What known centres say about rows: at a site or at the coordinator, the same code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError
from fedspan.federation import Federation, Site, step, transform
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.sums.posted_values import posted
from fedspan.wire import Message

Array = NDArray[Any]
Matrix = NDArray[np.float64]

_BLOCK_BYTES = 2**23


@transform("clustering.distances_to_centres")
def distances_to_centres(X: Array, centres: Matrix) -> Array:
    """Return the distances (n, k) of rows to centres (k, d), in the rows' precision."""
    found = np.empty((len(X), len(centres)), dtype=np.float32 if X.dtype == np.float32 else np.float64)
    for j, centre in enumerate(centres):  # by differences: a common offset costs nothing
        D = X - centre
        found[:, j] = np.sqrt(np.vecdot(D, D))
    return found


def closest_labels(X: Array, centres: Matrix) -> NDArray[np.int32]:
    """Return the number (n,) of the closest of the centres (k, d)."""
    reference = centres.mean(axis=0)
    about = (centres - reference)[None]
    labels = np.empty(len(X), dtype=np.int32)
    rows = max(16, _BLOCK_BYTES // (8 * max(centres.shape)))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        labels[part] = closest(np.asarray(X[part], dtype=np.float64) - reference, about)[:, 0]
    return labels


@step("clustering.labels", reveals="rows")
def local_labels(site: Site, centres: Matrix) -> dict[str, Any]:
    """Leaves the site: the number of the closest centre of each of its rows, in their order."""
    return {"labels": closest_labels(site.X, centres)}


def centre_labels(fed: Federation, *, centres: Matrix) -> dict[str, NDArray[np.int32]]:
    """Return the labels of the rows of each site that posts them."""

    def check(reply: Message) -> Message:
        labels, k = np.asarray(reply.get("labels")), len(centres)
        whole = labels.ndim == 1 and labels.dtype.kind in "iu"
        if not whole or not np.isin(labels, np.arange(k)).all():
            raise MessageError(f"labels must be whole numbers from 0 to {k - 1}, one per row")
        return reply

    replies = posted(fed, local_labels, "labels", check, centres=centres)
    return {name: np.asarray(reply["labels"], dtype=np.int32) for name, reply in replies.items()}
