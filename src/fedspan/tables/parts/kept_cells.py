"""What an encoder keeps of its rows to learn on: of each encoded column the cells that are there, and their moments.

A missing cell has the mean of its column. As that mean moves from batch to batch, cells that have a value are counted
apart from missing ones. Their number, mean and squares about it add up exactly, whatever fills the gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedspan.federation import Federation
from fedspan.federation.site.parameters import Flags, Vector
from fedspan.sums.moments import Moments, moments
from fedspan.tables.parts.encoding import Encoding, encode


@dataclass(frozen=True)
class KeptCells:
    """The weight `n` of all rows, and of each column (E,), values and names, that of the cells that are there.

    `mean` and `scatter` are those of these cells.
    """

    n: float
    present: Vector
    mean: Vector
    scatter: Vector

    @classmethod
    def of_array(cls, kept: Vector) -> KeptCells:
        """Undo `array`."""
        return cls(float(kept[0]), *kept[1:].reshape(3, -1))

    def array(self) -> Vector:
        """Return the kept cells as one array that a model stores."""
        return np.concatenate([[self.n], self.present, self.mean, self.scatter])

    def merged(self, new: KeptCells, factor: float) -> KeptCells:
        """Return the cells of both, where `factor` multiplies the weight of `self`."""
        old, present = factor * self.present, factor * self.present + new.present
        whole = np.where(present > 0, present, 1.0)
        apart = new.mean - self.mean
        mean = np.where(old > 0, self.mean + apart * new.present / whole, new.mean)
        scatter = factor * self.scatter + new.scatter + apart**2 * old * new.present / whole
        return KeptCells(factor * self.n + new.n, present, mean, scatter)

    def moments(self, encoding: Encoding) -> Moments:
        """Return the moments of all encoded columns but the last one for unexpected gaps."""
        encoding = replace(encoding, unexpected=0.0)
        mean, variance = np.empty(len(encoding.stands_for("value"))), np.empty(len(encoding.stands_for("value")))
        own, mark = _places(encoding)
        filled = self.present / self.n
        marked_names = encoding.stands_for("name")[own] & (mark >= 0)
        share = self.mean * filled
        mean[own] = np.where(marked_names, share, self.mean)
        variance[own] = np.where(marked_names, share * (1.0 - share), self.scatter / self.n)
        gaps = 1.0 - filled
        mean[mark[mark >= 0]] = gaps[mark >= 0]
        variance[mark[mark >= 0]] = (gaps * (1.0 - gaps))[mark >= 0]
        whole = round(self.n)
        return Moments(whole, mean, variance, weight=whole if abs(whole - self.n) < 1e-9 * self.n else self.n)


def of_moments(encoding: Encoding, found: Moments) -> KeptCells:
    """Return the cells of rows whose encoded columns have these moments, if all gaps are marked."""
    own, mark = _places(encoding)
    filled = np.where(mark >= 0, 1.0 - found.mean[mark], 1.0)
    present = np.rint(found.weight * filled)
    names = encoding.stands_for("name")[own]
    share = np.where(names & (mark >= 0), found.mean[own] / np.where(filled > 0, filled, 1.0), found.mean[own])
    scatter = np.where(names, present * share * (1.0 - share), found.weight * found.variance[own])
    return KeptCells(found.weight, present, share, scatter)


def cells_of(encoding: Encoding, fed: Federation, fill: Vector) -> KeptCells:
    """Return the cells of all rows; `fill` (E,) is near the means of the values, and only rounding depends on it."""
    every: Flags = np.ones(len(encoding.text), dtype=bool)
    marked = replace(encoding, missing=every, unexpected=0.0)
    own, mark = _places(marked)
    wide = np.zeros(len(marked.stands_for("value")))
    wide[own] = np.where(marked.stands_for("value")[own], fill, 0.0)
    labels = tuple(marked.labels([f"x{j}" for j in range(len(every))]))
    seen: Any = fed.apply(encode, **marked.parameters(wide))
    found = moments(seen, labels)
    present = np.rint(found.weight * (1.0 - found.mean[mark]))
    whole = np.where(present > 0, present, 1.0)
    shift = found.mean[own] - wide[own]
    sums, squares = found.weight * shift, found.weight * (found.variance[own] + shift**2)
    mean = wide[own] + sums / whole
    return KeptCells(found.weight, present, mean, np.maximum(squares - sums**2 / whole, 0.0))


def _places(encoding: Encoding) -> tuple[Any, Any]:
    """Return the places (E,) of values and names, and for each that of the mark of its gaps, or -1."""
    own: list[int] = []
    mark: list[int] = []
    known, at = iter(encoding.names), 0
    for is_text, is_marked in zip(encoding.text, encoding.missing, strict=True):
        width = len(next(known)) + encoding.other if is_text else 1
        own += range(at, at + width)
        mark += [at + width if is_marked else -1] * width
        at += width + bool(is_marked)
    return np.array(own, dtype=np.intp), np.array(mark, dtype=np.intp)
