"""Many long vectors about one of them: differences in blocks, and isometric coordinates of a few numbers each.

Differences from a data point are correctly rounded. Vectors that agree with the reference to 1e-8 keep all of their
digits, even when others are 1e8 or 1e150 away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.errors import InputError
from fedspan.linalg.medians.median_certificate import reach, rounding
from fedspan.linalg.medians.median_solver import isometric_coordinates

Vectors = NDArray[np.float32] | NDArray[np.float64]

LARGEST = 1e300  # differences and sums of larger numbers might overflow
BLOCK = 2048  # columns at a time: keeps a block in the cache, and the rounding error of a long sum small
FARTHEST = 100  # a vector more than 2**100 times as far as the median can be counts by its direction alone


@dataclass(frozen=True)
class Frame:
    """Vectors about a reference: coordinates in units of a power of two, safe from overflow.

    `coordinates` (L, k), k <= L, are isometric, the reference at the origin. `row_scale` (L,) are powers of two: the
    square of a difference times its row scale does not overflow. `stretch` (L,) leads from a scaled difference to
    coordinates. `shrink` (L,) is 1, except for far vectors, whose coordinates were pulled in along their direction.
    """

    coordinates: Floats
    row_scale: Floats
    stretch: Floats
    shrink: Floats


def differences(points: Vectors, centre: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of columns of ``points - centre``, in float64; each block overwrites the previous one."""
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


def scale_rows(V: Floats, row_scale: Floats) -> None:
    """Multiply the rows in place, unless all scales are 1."""
    if (row_scale != 1.0).any():
        V *= row_scale[:, None]


def central_vector(points: Vectors, weights: Floats) -> int:
    """Return a reference: the vector nearest to the coordinatewise median on up to 1,024 coordinates.

    Robust like the median itself: it is from the cluster that most vectors form.
    """
    step = -(-points.shape[1] // 1024)
    present = np.flatnonzero(weights)
    sample = points[present, ::step].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # `frame_about` refuses NaN and infinity
        away = np.abs(sample - np.median(sample, axis=0)).sum(axis=1)
    return int(present[np.argmin(away)])


def frame_about(points: Vectors, weights: Floats, reference: int) -> Frame:
    """Centre the points and reduce them to coordinates by their L x L Gram matrix, or to differences if d <= L."""
    centre = points[reference].astype(np.float64)
    ones = np.ones(len(points))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled, length = _coordinates(points, centre, ones)
        # a square near to the ends of the range may have underflowed, or be NaN: use those vectors themselves
        for row in np.flatnonzero(~((length > 1e-90) & (length < 1e90))):
            length[row] = np.abs(points[row] - centre).max()
    if not (length <= LARGEST).all():
        if np.isfinite(points).all():
            raise InputError(f"points must differ by less than {LARGEST:g}, or their distances might overflow")
        raise InputError("points must be finite, but some entries are NaN or infinite")

    present = weights > 0.0
    unit = max(reach(length[present], weights[present]), 2.0**-900)
    if length.max() < 1e90 and unit > 1e-90:
        return Frame(scaled, ones, ones, ones)
    exponent = np.frexp(np.maximum(length, unit))[1]
    beyond = exponent - np.frexp(unit)[1]
    row_scale = np.ldexp(1.0, -exponent)
    stretch = np.ldexp(1.0, np.minimum(beyond, FARTHEST))
    shrink = np.ldexp(1.0, np.minimum(FARTHEST - beyond, 0))
    scaled, _ = _coordinates(points, centre, row_scale)
    return Frame(scaled * stretch[:, None], row_scale, stretch, shrink)


def _coordinates(points: Vectors, centre: Floats, row_scale: Floats) -> tuple[Floats, Floats]:
    """Return isometric coordinates of the scaled differences, if all their lengths are finite, and the lengths."""
    L, d = points.shape
    if d <= L:
        scaled = (points - centre) * row_scale[:, None]
        return scaled, np.asarray(np.sqrt(np.vecdot(scaled, scaled)))
    gram = np.zeros((L, L))
    for _, V in differences(points, centre):
        scale_rows(V, row_scale)
        gram += V @ V.T
    length = np.sqrt(np.diagonal(gram))
    return isometric_coordinates(gram) if np.isfinite(length).all() else gram, length


def _block_width(L: int, d: int) -> int:
    return min(d, BLOCK, max(64, 2**17 // L))
