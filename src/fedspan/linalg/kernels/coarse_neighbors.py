"""Nearest neighbours on a graphics card: coarse scores of all pairs in half precision, exact distances of the best.

Rows are in groups of 32. The least score of each group decides which groups are searched: a few more of them than
neighbours are wanted. Within these, squared distances are computed by differences, in single precision. So the result
is exact if the scores are good enough to find the groups. Measure the share of neighbours that is found; if it is low,
use scores in single precision (``half=False``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.linalg.array_backend import to_device
from fedspan.linalg.kernels.landmark_form import LowRankDistances

GROUP = 32
#: Rows that are scored at once, and rows among which: blocks of scores of 2 GiB in half precision.
QUERIES, CHUNK = 8192, 131_072
#: Numbers of a block of candidates.
_CANDIDATE_NUMBERS = 2**28
#: Groups that are searched: this multiple of the neighbours, and at least this number more.
_MORE, _AT_LEAST = 1.5, 10
#: The median length of rows in units of the scores, and the limits within which half precision holds their products.
_LENGTH, _LARGEST, _FARTHEST = 8.0, 200.0, 3e4
#: Columns of the factors are filled up to a multiple of this.
_WIDTH = 64


def coarse_nearest(
    rows: LowRankDistances, k: int, device: str, *, half: bool = True
) -> Iterator[tuple[slice, NDArray[np.int32], Array]]:
    """Yield the k nearest other rows of each row, nearest first, and their distances, for blocks of `QUERIES` rows.

    Parameters
    ----------
    rows : LowRankDistances
        Squared Euclidean distances (all signs are -2), in single precision.
    k : int
    device : str
        As torch names it.
    half : bool, default=True
        Whether scores are in half precision; else in single.
    """
    import torch

    n = len(rows)
    C = to_device(rows.factor, device)
    offset = to_device(rows.offset, device)
    apart = torch.clamp(offset - (C * C).sum(1), min=0)  # squared distances to the span of the landmarks
    left, right = _factors(C, offset, half=half)
    groups = min(-(-n // GROUP), max(int(_MORE * k), k + _AT_LEAST))
    steps = torch.arange(GROUP, device=device)
    for start in range(0, n, QUERIES):
        part = slice(start, min(start + QUERIES, n))
        Q = left[part]
        least = [(Q @ chunk.T).view(len(Q), GROUP, -1).amin(1) for chunk in right]
        best = torch.cat(least, 1).topk(groups, dim=1, largest=False, sorted=False).indices
        indices = torch.empty((len(Q), k), dtype=torch.int32, device=device)
        squares = torch.empty((len(Q), k), dtype=C.dtype, device=device)
        size = max(1, _CANDIDATE_NUMBERS // (groups * GROUP * C.shape[1]))
        for begin in range(0, len(Q), size):
            own = torch.arange(start + begin, min(start + begin + size, part.stop), device=device)
            some = (best[begin : begin + size, :, None] * GROUP + steps).flatten(1)
            there = some.clamp(max=n - 1)
            D = C[there]
            D -= C[own][:, None]
            far = torch.linalg.vecdot(D, D) + apart[there] + apart[own][:, None]
            far.masked_fill_((some == own[:, None]) | (some >= n), torch.inf)
            values, which = far.topk(k, dim=1, largest=False)
            squares[begin : begin + size] = values
            indices[begin : begin + size] = some.gather(1, which).int()
        yield part, indices.cpu().numpy(), rows.as_distances(squares.cpu().numpy())


def _factors(C: Any, offset: Any, *, half: bool) -> tuple[Any, list[Any]]:
    """Return factors whose products are ``offset_j - 2 c_i'c_j``, in some unit: the scores of rows j for row i.

    The offset is the sum of two columns, so that half precision holds it. The second factor is in chunks, each with the
    first rows of all its groups before the second ones. A minimum over groups then reads scores as they lie.
    """
    import torch

    n, r = C.shape
    length = torch.sqrt(offset.clamp(min=0)).median()
    unit = _LENGTH / length if bool(length > 0) else torch.ones_like(length)
    S, squares = torch.clamp(C * unit, -_LARGEST, _LARGEST), torch.clamp(offset * unit**2, max=_FARTHEST)
    kind = torch.float16 if half else torch.float32
    width = -(-(r + 2) // _WIDTH) * _WIDTH
    padded = -(-n // GROUP) * GROUP
    left = torch.zeros((n, width), dtype=kind, device=C.device)
    right = torch.zeros((padded, width), dtype=kind, device=C.device)
    left[:, :r], left[:, r : r + 2] = (-2 * S).to(kind), 1
    right[:n, :r] = S.to(kind)
    rounded = squares.to(kind)
    right[:n, r], right[:n, r + 1] = rounded, (squares - rounded.to(squares.dtype)).to(kind)
    right[n:, r] = _FARTHEST
    chunks = (right[begin : begin + CHUNK] for begin in range(0, padded, CHUNK))
    return left, [chunk.view(-1, GROUP, width).transpose(0, 1).reshape(-1, width) for chunk in chunks]
