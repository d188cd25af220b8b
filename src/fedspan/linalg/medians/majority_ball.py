"""The smallest ball round a value that holds most values: what is near it, and how far a minority can move a result.

Let the honest values lie within ``rho`` of one of them, and let fewer than half of all be malicious. A geometric median
is then within ``2 (1 - a) / (1 - 2 a) rho`` of that one, for a part ``a`` of malicious values. The factor is 4.2 at 10
/ 29, and 20 at 9 / 19. The smallest ball that holds a majority is not larger, and holds an honest value: its centre is
within ``2 rho``, whatever the part.

How far honest values differ is not known, but the values themselves bound it from below. Of m malicious ones, the
others need a ball at least as large as the smallest that holds all but m. The table of `resilience` takes it to be at
most twice as large, and then holds without further assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.linalg.small_clusters import k_medoids

Block = tuple[NDArray[np.intp], Floats, Floats]  # some values, and their distances to all, from below and from above
Rows = NDArray[np.intp]
Blocks = Callable[[Rows], Iterator[Block]]

TABLE = np.dtype([("malicious", np.int64), ("radius", np.float64), ("bound", np.float64)])

_SAME = 1e-9  # relative: radii that are closer than this differ by rounding
_WIDER = 2.0  # times the smallest ball: the honest values may need as large a one
_FEW = 5  # values: fewer do not show two groups
#: The smaller one of two groups of nearly equal size has at least this share of the values.
SECOND_GROUP = 0.35
_APART = 1.5  # times the distances within the groups
_TIGHT = 0.1  # times the median distance: values that are nearer to one another than honest ones of one kind


def near_majority(distances: Floats, weights: Floats, factor: float) -> NDArray[np.bool_]:
    """Return the values (L,) within `factor` radii of the smallest ball round a value that holds a majority.

    The majority is by `weights` (L,). Of several balls of that size, those near any of them are returned.
    """
    order = np.argsort(distances, axis=1, kind="stable")
    held = np.cumsum(weights[order], axis=1)
    last = np.argmax(held > held[:, -1:] * (0.5 + 4.0 * len(weights) * np.finfo(np.float64).eps), axis=1)
    radii = np.take_along_axis(distances, np.take_along_axis(order, last[:, None], axis=1), axis=1)[:, 0]
    edge = radii.min() * (1.0 + _SAME)
    return np.asarray((distances[radii <= edge] <= factor * edge).any(axis=0))


def near_majority_of_blocks(blocks: Blocks, count: int, factor: float) -> NDArray[np.bool_]:
    """Return the same for `count` values of equal weight, from blocks of rows; errors of distances never exclude."""
    middle = count // 2
    radii = np.concatenate(
        [np.partition(high, middle, axis=1)[:, middle].copy() for *_, high in blocks(np.arange(count))]
    )
    edge = radii.min() * (1.0 + _SAME)
    near = np.zeros(count, dtype=bool)
    for _, low, _ in blocks(np.flatnonzero(radii <= edge)):
        near |= (low <= factor * edge).any(axis=0)
    return near


def resilience(blocks: Blocks, result: Floats, centres: Rows) -> NDArray[np.void]:
    """Return how far up to m malicious values can have moved a result, for m = 1, ..., fewer than half: a table.

    Parameters
    ----------
    blocks : callable
        Returns the distances of some values to all, in blocks of rows.
    result : array (L,)
        The distance of every value from the result.
    centres : array of int
        The values that may be the centre of the honest ones: all, unless there are very many.

    Returns
    -------
    table : structured array
        `malicious`: m. `radius`: of the smallest ball round a value that holds all but m values. `bound`: for at most m
        malicious ones. If the others lie within twice that radius of one of them, the result is within the bound of
        that one.
    """
    most = (len(result) - 1) // 2
    counts = len(result) - 1 - np.arange(1, most + 1)  # the place of the farthest value in a ball

    def radii(high: Floats) -> Floats:
        return np.sort(high, axis=1)[:, counts]

    table = np.zeros(most, dtype=TABLE)
    table["malicious"] = np.arange(1, most + 1)
    if most:
        table["radius"] = np.min([radii(high).min(axis=0) for _, _, high in blocks(centres)], axis=0)
        for rows, low, _ in blocks(centres):
            possible = radii(low) <= _WIDER * table["radius"]
            bound = np.where(possible, result[rows, None], 0.0).max(axis=0)
            table["bound"] = np.maximum(table["bound"], bound)
    return table


def two_groups(distances: Floats) -> NDArray[np.bool_] | None:
    """Return the members of the smaller one of two groups (L,), if values form two of nearly equal size, or ``None``.

    Which one is honest can't be known then. A group may also be much more alike than the others: malicious sites that
    send one value, or copies of an honest one.
    """
    count = len(distances)
    if count < _FEW:
        return None
    second = distances[:, k_medoids(distances, 2)].argmin(axis=1) == 1
    small: NDArray[np.bool_] = second if 2 * second.sum() <= count else ~second
    same = small[:, None] == small
    within = float(distances[same].sum()) / max(1, int(same.sum()) - count)
    between = float(distances[~same].mean()) if not same.all() else 0.0
    if small.sum() >= SECOND_GROUP * count and between > 0.0 and between >= _APART * within:
        return small
    # Of a tight group and values that are spread, these may be nearer to it than to one another.
    near = distances <= _TIGHT * float(np.median(distances[~np.eye(count, dtype=bool)]))
    tight = near[near.sum(axis=1).argmax()]
    small = tight if 2 * tight.sum() <= count else ~tight
    return small if small.sum() >= SECOND_GROUP * count else None
