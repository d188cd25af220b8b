"""Random blocks of rows that depend on the rows alone: any split of the rows over sites draws the same blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix

#: Rows count as equal up to this share of the columns' deviations: their last bits depend on how rows are split.
_FINENESS = 2.0**-20


def grid_steps(variance: Matrix) -> Matrix:
    """Return the step (d,) to which the values of each column are rounded: a power of two, equal for any split."""
    deviation = np.sqrt(np.asarray(variance, dtype=np.float64))
    varied = np.isfinite(deviation) & (deviation > 0.0)
    return np.asarray(np.exp2(np.floor(np.log2(np.where(varied, deviation, 1.0)) + 1e-6)) * _FINENESS)


def row_keys(X: Matrix, steps: Matrix) -> NDArray[np.uint64]:
    """Return a number (n,) for each row (n, d), which its values decide, rounded to `steps`."""
    grid = np.rint(np.asarray(X, dtype=np.float64) / steps) + 0.0  # -0.0 becomes 0.0
    drawn = np.random.default_rng(1).integers(0, 2**63, X.shape[1], dtype=np.uint64)
    factors = np.asarray(2 * drawn + 1)  # odd ones lose no bits
    keys = np.zeros(len(X), dtype=np.uint64)
    for column, factor in zip(np.ascontiguousarray(grid.T), factors, strict=True):
        keys = _mixed(keys ^ (column.view(np.uint64) * factor))
    return keys


def blocks_of(keys: NDArray[np.uint64], draw: int, blocks: int) -> NDArray[np.int64]:
    """Return the block (n,) that each row is in, in the draw number `draw`."""
    return (_mixed(keys + np.uint64(draw)) % np.uint64(blocks)).astype(np.int64)


def _mixed(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return keys with their bits mixed (the finaliser of SplitMix64, Steele et al. 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(keys ^ (keys >> np.uint64(31)))
