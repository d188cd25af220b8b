"""The repulsion of a t-SNE map from a histogram of its points, by fast Fourier transforms.

Points in the plane are spread over the four nearest nodes of a grid. Sums over all points of ``q = 1 / (1 + d^2)`` and
of ``q^2 (y - y_j)`` are then convolutions of the histogram with a kernel, interpolated between nodes. The positions of
single points are not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft2, next_fast_len, rfft2

from fedspan.arrays import Array, Matrix


@dataclass(frozen=True)
class Grid:
    """Nodes ``low + cell * (i, j)``, `size` in each direction; `low` (2,) is the corner."""

    low: Matrix
    cell: float
    size: int

    @property
    def high(self) -> Matrix:
        """The corner opposite to `low`."""
        return np.asarray(self.low + self.cell * (self.size - 1))

    def histogram(self, Y: Array) -> Matrix:
        """Return the number of points (n, 2) at each node (size, size); the four nodes around a point share it."""
        nodes, shares = self._places(Y)
        spread = np.bincount(nodes.ravel(), shares.ravel(), minlength=self.size**2)
        return np.asarray(spread, dtype=np.float64).reshape(self.size, self.size)

    def between(self, fields: Array, Y: Array) -> Matrix:
        """Return the values (n, m) at points (n, 2) of fields (m, size, size) given at the nodes."""
        nodes, shares = self._places(Y)
        flat = np.ascontiguousarray(fields.reshape(len(fields), -1).T)
        return np.asarray(np.einsum("nk,nkm->nm", shares, flat[nodes]))

    def own_kernel(self, Y: Array) -> float:
        """Return the sum over points of the grid's kernel between a point and itself."""
        _, shares = self._places(Y)
        near = 1.0 / (1.0 + self.cell**2 * _CORNERS_APART)
        return float(np.einsum("nk,kl,nl->", shares, near, shares))

    def repulsion(self, histogram: Array) -> Matrix:
        """Return the fields (3, size, size): the sums over points of q, and of q^2 (y - y_j) in both directions."""
        wide = next_fast_len(2 * self.size - 1, real=True)
        steps = self.cell * np.fft.fftfreq(wide, 1.0 / wide)
        q = 1.0 / (1.0 + steps[:, None] ** 2 + steps**2)
        kernels = np.stack([q, q * q * steps[:, None], q * q * steps])
        product = rfft2(kernels) * rfft2(histogram, (wide, wide))
        return np.ascontiguousarray(irfft2(product, (wide, wide))[:, : self.size, : self.size])

    def _places(self, Y: Array) -> tuple[NDArray[np.intp], Matrix]:
        """Return the four nodes around each point (n, 4), and its share of each."""
        at = np.clip((np.asarray(Y, dtype=np.float64) - self.low) / self.cell, 0.0, self.size - 1.0)
        corner = np.minimum(at.astype(np.intp), self.size - 2)
        part = at - corner
        nodes = (corner[:, :1] * self.size + corner[:, 1:]) + np.array([0, 1, self.size, self.size + 1])
        along, across = (np.stack([1.0 - part[:, axis], part[:, axis]], axis=1) for axis in (0, 1))
        return nodes, (along[:, :, None] * across[:, None, :]).reshape(-1, 4)


#: Squared distances between the four corners of a cell of width 1.
_CORNERS_APART = np.array([[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]], dtype=np.float64)

#: The least half width of a grid, for points that all coincide, in units where q falls to a half at 1.
_LEAST_HALF = 1e-4


def grid_around(histogram: Array, grid: Grid, grow: float, few: float) -> Grid:
    """Return a square grid around the points of a histogram, `grow` times as wide as they extend, of the same size.

    The outermost `few` points on each side do not count: no single point decides the width of the grid.
    """
    bounds = np.array([_extent(histogram.sum(axis=1 - axis), few) for axis in (0, 1)], dtype=np.float64)
    lows, highs = (grid.low[:, None] + grid.cell * bounds).T
    half = max(0.5 * max(float(np.max(highs - lows)), 0.5 * grid.cell) * grow, _LEAST_HALF)
    return Grid(0.5 * (lows + highs) - half, 2.0 * half / (grid.size - 1), grid.size)


def _extent(marginal: Matrix, few: float) -> tuple[int, int]:
    """Return the first and the last node with points, without the outermost `few` on each side."""
    few = min(few, 0.25 * float(marginal.sum()))
    low = int(np.searchsorted(np.cumsum(marginal), few, side="right"))
    high = len(marginal) - 1 - int(np.searchsorted(np.cumsum(marginal[::-1]), few, side="right"))
    return max(0, min(low, high)), min(len(marginal) - 1, max(low, high))
