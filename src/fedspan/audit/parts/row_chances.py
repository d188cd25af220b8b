"""How surprising it is that a vector lies near a row: distances to the two nearest rows, and the row's information.

Let r be the ratio of a vector's distances to its two nearest rows, and k the dimension of the rows. If the vector has
nothing to do with the rows, the chance of r or less is r^k. The chance is never taken to be less than the information
in the row's cells allows. Rows of few possible values are hit by chance. One search makes many comparisons;
`beyond_chance` keeps the hits that their number does not explain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from fedspan.arrays import Matrix

#: The chance of a search to report anything where there is nothing.
LEVEL = 1e-3
#: Distances and cells that differ by less, in units of a column's spread, are equal.
EQUAL = 1e-9
#: Vectors whose nearest row is not nearer than this part of the second one are no hits.
_NEAR = 0.05
#: The same where a form crowds rows together, as a distance.
_SAME = 1e-4
#: The information of a cell of real numbers, in bits; rounding takes the others.
_MOST_BITS = 30
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Space:
    """Distinct rows (n, m) of a table in the form in which messages may have them; `into` brings vectors there.

    `lost` is the number of unknowns of that form, such as a factor: they take as many columns' information. A factor
    may be negative, so that with any unknown a vector and its negative are the same. `numbers` are the rows' numbers
    where the form does not exist for all rows. An `uneven` form crowds rows together, as an exponential does: what is
    near there is measured cell by cell, by the other rows' cells.
    """

    name: str
    rows: Matrix = field(repr=False)
    bits: Matrix = field(repr=False)
    into: Callable[[Matrix], Matrix] = field(repr=False)
    lost: int = 0
    numbers: NDArray[np.intp] | None = field(default=None, repr=False)
    uneven: bool = False

    @cached_property
    def dimension(self) -> float:
        """The dimension of the rows, by the distances to their two nearest ones (Facco et al., 2017)."""
        some = self.rows[np.linspace(0, len(self.rows) - 1, min(len(self.rows), 300)).astype(int)]
        _, near = nearest(some, self.rows, 3, either=self.lost > 0)
        ratios = near[:, 2] / np.maximum(near[:, 1], 1e-300)
        found = len(some) / max(float(np.log(ratios[near[:, 1] > 0]).sum()), 1e-9) if len(self.rows) > 3 else 1.0
        return float(np.clip(found, 1.0, max(1, self.rows.shape[1] - self.lost)))

    def hits(self, vectors: Matrix) -> tuple[NDArray[np.intp], Matrix]:
        """Return the nearest row of each vector, and the chance of being so near (1 where it is not near)."""
        with np.errstate(over="ignore", invalid="ignore"):  # far from all rows, in units of theirs
            V = self.into(vectors)
            which, near = nearest(V, self.rows, 2, either=self.lost > 0)
            which, floor = which[:, 0], 1e-13 * (1 + np.abs(V).max(axis=1))
            ratio = np.minimum((near[:, 0] + floor) / (near[:, 1] + floor), 1.0)  # NaN where a vector is not finite
        share = 1.0
        if self.lost:  # (0, 0, 5) is (0, 0, 1) times a factor, and adds no information
            different = (np.diff(np.sort(np.abs(vectors)), axis=1, prepend=0.0) > 0).sum(axis=1)
            share = np.maximum(different - self.lost, 0) / self.rows.shape[1]
        least = len(self.rows) * 2.0 ** -(self.bits[which] * share)
        chance = np.where(near[:, 0] <= EQUAL, least, np.maximum(ratio**self.dimension, least))
        chance = np.where((ratio < _NEAR) | (near[:, 0] <= EQUAL), np.minimum(chance, 1.0), 1.0)
        if self.uneven:
            chance = np.where(near[:, 0] < _SAME, chance, 1.0)
            for i in np.flatnonzero(chance < 1):
                chance[i] = max(chance[i], self._local_chance(V[i], which[i], near[i, 0]))
        return which if self.numbers is None else self.numbers[which], chance

    def _local_chance(self, v: Matrix, row: int, apart: float) -> float:
        """Return the chance that all cells are as near to a row's as they are, by the other rows' cells."""
        sign = 1.0 if not self.lost or v @ self.rows[row] >= 0 else -1.0
        gaps = np.sort(np.abs(self.rows - sign * v), axis=0)
        near = max(apart, EQUAL)
        within = (gaps <= near).sum(axis=0)
        shares = np.where(within > 1, within, near / np.maximum(gaps[1], near)) / len(self.rows)
        return float(min(1.0, len(self.rows) * np.prod(np.sort(shares)[self.lost :])))


def nearest(V: Matrix, rows: Matrix, count: int, *, either: bool = False) -> tuple[NDArray[np.intp], Matrix]:
    """Return the `count` nearest rows of each vector, the nearest first, and their distances, exact for small ones.

    With `either`, the nearest of a vector or of its negative.
    """
    found = np.zeros((len(V), count), dtype=np.intp)
    squares = np.vecdot(rows, rows)
    block = max(1, _BLOCK // max(1, len(rows)))
    for start in range(0, len(V), block):
        part = V[start : start + block]
        products = part @ rows.T
        apart = squares - 2 * (np.abs(products) if either else products)
        for place in range(count):
            best = apart.argmin(axis=1)
            found[start : start + block, place] = best
            apart[np.arange(len(part)), best] = np.inf
    distances = np.stack([np.linalg.norm(V - rows[found[:, place]], axis=1) for place in range(count)], axis=1)
    if either:
        other = np.stack([np.linalg.norm(V + rows[found[:, place]], axis=1) for place in range(count)], axis=1)
        distances = np.minimum(distances, other)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(distances, order, axis=1)


def column_bits(rows: Matrix) -> Matrix:
    """Return the information (n, m) in each cell, in bits: by how often a value occurs, and how many there can be.

    Examples
    --------
    >>> column_bits(np.array([[0.0, 1.5], [0.0, 2.5], [1.0, 7.0], [1.0, 9.0]]))[0].round(2)
    array([1.  , 6.25])
    """
    bits = np.empty(rows.shape)
    for column, found in zip(rows.T, bits.T, strict=True):
        values, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        rare = np.log2(len(rows) / counts)
        if 2 * len(values) > len(rows):
            fineness = max(step(values), np.ptp(values) * 2.0**-_MOST_BITS)
            possible = np.log2(np.ptp(values) / fineness + 1) if len(values) > 1 else 0.0
            rare = np.where(counts == 1, np.maximum(rare, possible), rare)
        found[:] = rare[place]
    return bits


def step(values: Matrix) -> float:
    """Return the step of the grid on which most values lie, such as 0.01, 1/8 or 1/255; 0 if they lie on no grid."""
    for power in (*(10.0 ** np.arange(-3, 7)), *(2.0 ** np.arange(1, 21))):
        scaled = values * power
        if np.mean(np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))) > 0.5:
            return float(1 / power)
    gaps = np.diff(np.unique(values))
    gaps = gaps[gaps > 1e-12 * np.abs(values).max(initial=0)]  # others are of rounding
    if len(gaps) > 2:
        multiples = gaps / gaps.min()
        if multiples.max() < 1e5 and np.mean(np.abs(multiples - np.rint(multiples)) < 1e-4 * multiples) > 0.5:
            return float(gaps.min())
    return 0.0


def beyond_chance(which: NDArray[np.intp], chances: Matrix, tests: float) -> NDArray[np.bool_]:
    """Return which hits more than chance explains, of as many vectors as there are chances, in `tests` such searches.

    Vectors that hit the same row count once: iterates of one quantity resemble one another.
    """
    if not (chances < 1).any():
        return np.zeros(len(chances), dtype=np.bool_)
    order = np.argsort(chances, kind="stable")
    first = np.sort(np.unique(which[order], return_index=True)[1])
    sorted_chances = chances[order[first]]
    expected, number = sorted_chances * len(chances), np.arange(1, len(first) + 1)
    sure = (gammainc(number, expected) * tests < LEVEL) & (expected <= 0.02 * number)
    return np.asarray(
        chances <= sorted_chances[np.flatnonzero(sure)[-1]] if sure.any() else np.zeros(len(chances), bool)
    )
