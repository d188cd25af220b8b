"""Many long vectors, seen from one of them: differences in blocks, and isometric coordinates of a few numbers each.

Differences to a data point are correctly rounded, so that vectors which agree with the reference to 1e-8 keep all of
their digits, also when others are 1e8 or 1e150 away. Everything else follows from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.linalg.certificate import Array, reach, rounding
from fedspan.linalg.fermat import isometric_coordinates

Vectors = NDArray[np.float32] | NDArray[np.float64]

LARGEST = 1e300  # differences and sums of larger numbers might overflow
BLOCK = 2048  # columns at a time: keeps a block in the cache, and the rounding error of a long sum small
FARTHEST = 100  # a vector 2**100 times farther than the median can be counts by its direction alone


@dataclass(frozen=True)
class Frame:
    """Vectors about a reference: coordinates in units of a power of two, safe from overflow.

    Attributes
    ----------
    coordinates : (L, k) array, k <= L
        Isometric, the reference at the origin.
    row_scale : (L,) array
        Powers of two; a difference times its row scale can be squared.
    stretch : (L,) array
        From a scaled difference to coordinates.
    shrink : (L,) array
        1, but for vectors so far away that their coordinates were pulled in along their direction.
    """

    coordinates: Array
    row_scale: Array
    stretch: Array
    shrink: Array


def differences(points: Vectors, centre: Array) -> Iterator[tuple[slice, Array]]:
    """Blocks of columns of ``points - centre``, in float64; each block overwrites the one before."""
    L, d = points.shape
    width = _block_width(L, d)
    buffer = np.empty((L, width))
    for start in range(0, d, width):
        block = slice(start, min(start + width, d))
        V = buffer[:, : block.stop - start]
        np.subtract(points[:, block], centre[block], out=V)
        yield block, V


def rounding_of_sums(L: int, d: int) -> float:
    """Bound the relative error of a sum of d squares of differences, added up block by block."""
    width = _block_width(L, d)
    return rounding(width + -(-d // width) + 8)


def scale_rows(V: Array, row_scale: Array) -> None:
    """Multiply the rows in place; most often there is nothing to do."""
    if (row_scale != 1.0).any():
        V *= row_scale[:, None]


def central_vector(points: Vectors, weights: Array) -> int:
    """Pick a reference cheaply: the vector nearest to the coordinatewise median on up to 1,024 coordinates.

    Robust like the median itself: while most vectors form a cluster, one of the cluster is picked.
    """
    step = -(-points.shape[1] // 1024)
    present = np.flatnonzero(weights)
    sample = points[present, ::step].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # `frame_about` refuses what is not finite
        away = np.abs(sample - np.median(sample, axis=0)).sum(axis=1)
    return int(present[np.argmin(away)])


def frame_about(points: Vectors, weights: Array, reference: int) -> Frame:
    """Centre, scale, and reduce to coordinates by way of the L x L Gram matrix (none is needed if d <= L)."""
    L, d = points.shape
    centre = points[reference].astype(np.float64)
    largest = np.zeros(L)
    with np.errstate(invalid="ignore", over="ignore"):
        for _, V in differences(points, centre):
            np.maximum(largest, np.abs(V, out=V).max(axis=1), out=largest)
    if not (largest <= LARGEST).all():
        if np.isfinite(points).all():
            raise InputError(f"points must differ by less than {LARGEST:g}, or their distances might overflow")
        raise InputError("points must be finite, but some entries are NaN or infinite")

    present = weights > 0.0
    unit = max(reach(largest[present], weights[present]), 2.0**-900)
    exponent, unit_exponent = np.frexp(np.maximum(largest, unit))[1], int(np.frexp(unit)[1])
    if unit_exponent > -300 and exponent.max() < 300:  # no square comes near to what float64 can hold
        exponent, unit_exponent = np.zeros_like(exponent), 0
    beyond = exponent - unit_exponent
    row_scale = np.ldexp(1.0, -exponent)
    stretch = np.ldexp(1.0, np.minimum(beyond, FARTHEST))
    shrink = np.ldexp(1.0, np.minimum(FARTHEST - beyond, 0))
    if d <= L:
        scaled = (points - centre) * row_scale[:, None]
    else:
        gram = np.zeros((L, L))
        for _, V in differences(points, centre):
            scale_rows(V, row_scale)
            gram += V @ V.T
        scaled = isometric_coordinates(gram)
    return Frame(scaled * stretch[:, None], row_scale, stretch, shrink)


def _block_width(L: int, d: int) -> int:
    return min(d, BLOCK, max(64, 2**17 // L))
