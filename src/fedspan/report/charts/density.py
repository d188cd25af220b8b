"""How crowded a map is around each of its points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

#: Reach of the smoothing, in cells.
REACH = 1.5
_CELLS = (12, 256)


def local_density(points: NDArray[Any]) -> NDArray[np.float64]:
    """Return the density (n,) around each of n points (n, 2), in units of its median.

    Points are counted in the cells of a grid, a few to a cell, and the counts are smoothed: O(n).

    Examples
    --------
    >>> points = np.concatenate([np.zeros((90, 2)), [[9.0, 9.0]]])
    >>> density = local_density(points)
    >>> float(density[0]), bool(density[-1] < 0.1)
    (1.0, True)
    """
    n = len(points)
    places = np.asarray(points, dtype=np.float64)
    low, wide = places.min(axis=0), np.ptp(places, axis=0)
    cells = int(np.clip(np.sqrt(n) / 2, *_CELLS))
    where = (places - low) / np.where(wide > 0, wide, 1.0) * (cells - 1)
    counts = np.zeros((cells, cells))
    np.add.at(counts, tuple(np.rint(where).astype(np.intp).T), 1)
    smooth = gaussian_filter(counts, REACH, mode="constant")
    density: NDArray[np.float64] = map_coordinates(smooth, where.T, order=1)
    return density / (np.median(density) or 1.0)
