"""Exact nearest neighbours from low-rank distances, in blocks of rows: never an n x n array.

On numpy or, through the array API, on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import whole_number
from fedspan.linalg.array_backend import namespace, to_device, to_numpy
from fedspan.linalg.kernels.landmark_form import LowRankDistances

Indices = NDArray[np.int32]

#: Size of the distances between one block of rows and all others.
BLOCK_BYTES = 2**26
#: The same on a GPU.
CARD_BLOCK_BYTES = 2**31


def nearest(
    rows: LowRankDistances, k: int, queries: LowRankDistances | None = None, device: str | None = None
) -> tuple[Indices, Array]:
    """Return the k nearest `rows` of each of the `queries`, or of each row but itself: indices and distances (n, k).

    Nearest first, as int32 and in the precision of the form; the `queries` have the same form as the rows. `device` is
    the torch name of the device to compute on, such as ``"cuda"`` (default: numpy). n^2 r multiplications for n rows of
    r columns. Memory beyond arguments and result: one copy of the factor and about twice `BLOCK_BYTES`.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    >>> rows = LowRankDistances(points, np.float32([-2]), points[:, 0] ** 2, squared=True)
    >>> nearest(rows, 1)
    (array([[1],
           [0],
           [1]], dtype=int32), array([[1.],
           [1.],
           [2.]], dtype=float32))
    """
    asked = rows if queries is None else queries
    indices = np.empty((len(asked), k), dtype=np.int32)
    distances = np.empty((len(asked), k), dtype=rows.factor.dtype)
    for part, found, far in nearest_in_blocks(rows, k, queries, device):
        indices[part], distances[part] = found, far
    return indices, distances


def block_rows(n: int, device: str | None = None) -> int:
    """Return the number of rows in one block of a search among n."""
    if device is None or device.startswith("cpu"):
        return max(16, min(1024, BLOCK_BYTES // (4 * max(1, n))))
    return max(16, min(16384, CARD_BLOCK_BYTES // (4 * max(1, n))))


def nearest_in_blocks(
    rows: LowRankDistances, k: int, queries: LowRankDistances | None = None, device: str | None = None
) -> Iterator[tuple[slice, Indices, Array]]:
    """Yield the result of `nearest` block by block: a slice of the queries, indices and distances."""
    n, asked = len(rows), rows if queries is None else queries
    whole_number("k", k, 1, n - (queries is None), why=", the number of rows to choose from")
    group = int(np.sqrt(n / k))  # balances the number of groups and of candidates in the best k of them
    width = -(-n // group)
    kind = rows.factor.dtype
    right = np.zeros((width * group, rows.factor.shape[1]), dtype=kind)
    np.multiply(rows.factor, rows.signs, out=right[:n])
    offset = np.full(width * group, np.inf, dtype=kind)
    offset[:n] = rows.offset
    right, offset = to_device(right, device), to_device(offset, device)
    xp = namespace(right)
    size = block_rows(n, device)
    values = xp.empty((min(size, len(asked)), width * group), dtype=right.dtype, device=right.device)
    for start in range(0, len(asked), size):
        part = slice(start, min(start + size, len(asked)))
        count = part.stop - part.start
        block = xp.matmul(to_device(asked.factor[part], device), right.T, out=values[:count])
        block += offset
        if queries is None:
            own = xp.arange(count, device=right.device)
            block[own, own + part.start] = xp.inf
        indices = _smallest(block, k, group)
        found = to_numpy(xp.take_along_axis(block, indices, axis=1)) + asked.offset[part, None]
        yield part, to_numpy(indices).astype(np.int32), rows.as_distances(found)


def _smallest(values: Any, k: int, group: int) -> Any:
    """Return the columns of the k smallest values of each row, smallest first.

    The columns j, j + width, j + 2 width, ... form a group. The k smallest values are in the k groups with the smallest
    minima: only these are searched.
    """
    xp = namespace(values)
    count, columns = values.shape
    width = columns // group
    if group < 4:
        candidates, some = None, values
    else:
        smallest = xp.min(xp.reshape(values, (count, group, width)), axis=1)
        best = _some_smallest(smallest, k)
        steps = width * xp.arange(group, device=values.device)
        candidates = xp.reshape(best[:, None, :] + steps[:, None], (count, -1))
        some = xp.take_along_axis(values, candidates, axis=1)
    chosen = _some_smallest(some, k)
    order = xp.argsort(xp.take_along_axis(some, chosen, axis=1), axis=1, stable=True)
    chosen = xp.take_along_axis(chosen, order, axis=1)
    return chosen if candidates is None else xp.take_along_axis(candidates, chosen, axis=1)


def _some_smallest(values: Any, k: int) -> Any:
    """Return the columns of the k smallest values of each row, in any order."""
    if isinstance(values, np.ndarray) and k < values.shape[1]:
        return np.argpartition(values, k - 1, axis=1)[:, :k]
    return namespace(values).argsort(values, axis=1)[:, :k]  # the array API has no partition
