"""What a gateway keeps between rows: where it is in the input, and sums of the rows for the next federated update.

One file holds all of it, and is replaced as a whole. A gateway that is killed begins again at the place of the last
file: rows after that place are scored again, and their sums and alarms are those that were not yet kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_NUMBERS = ("offset", "lines", "rows", "bad", "alarms", "written")


@dataclass
class KeptSums:
    """Counts and sums.

    Attributes
    ----------
    offset, lines : int
        Bytes and lines of the input that are dealt with.
    rows, bad, alarms : int
        Rows, lines that were none, and rows above the threshold.
    written : int
        Bytes of alarms.
    mean, products : array (d,), (d, d)
        Of the rows: their mean, and the products about it.
    counts : array (q + 1,)
        Scores up to, between and above the model's edges.
    header : list of str
        The columns of CSV.
    """

    mean: Array
    products: Array
    counts: Array
    offset: int = 0
    lines: int = 0
    rows: int = 0
    bad: int = 0
    alarms: int = 0
    written: int = 0
    header: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, d: int, edges: int) -> KeptSums:
        """Return the sums of no rows."""
        return cls(np.zeros(d), np.zeros((d, d)), np.zeros(edges + 1, dtype=np.int64))

    def add(self, X: Array, scores: Array, edges: Array) -> None:
        """Add rows (n, d) and their scores (n,)."""
        n, m = self.rows, len(X)
        if not m:
            return
        mean = X.mean(axis=0)
        D, apart = X - mean, mean - self.mean
        self.products += D.T @ D + np.outer(apart, apart) * (n * m / (n + m))
        self.mean = self.mean + apart * (m / (n + m))
        self.rows = n + m
        self.counts += np.bincount(np.searchsorted(edges, scores, side="left"), minlength=len(self.counts))

    def save(self, path: Path) -> None:
        """Replace the file."""
        temporary = path.with_name(path.name + ".new")
        arrays: dict[str, Any] = {name: np.int64(getattr(self, name)) for name in _NUMBERS}
        arrays |= {"mean": self.mean, "products": self.products, "counts": self.counts}
        with temporary.open("wb") as file:
            np.savez(file, header=np.array(self.header, dtype=str), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> KeptSums:
        """Read the file."""
        with np.load(path, allow_pickle=False) as file:
            found = {name: int(file[name]) for name in _NUMBERS}
            header = [str(name) for name in file["header"]]
            return cls(file["mean"], file["products"], file["counts"], **found, header=header)
