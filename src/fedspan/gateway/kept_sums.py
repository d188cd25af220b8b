"""What a gateway keeps between rows: where it is in the input, and sums of the rows for the next federated update.

One file holds all of it, and is replaced as a whole. A gateway that is killed begins again at the place of the last
file. Rows after that place are scored again: their sums and alarms were not kept yet.

Sums of a period are closed into a file of their own in three steps. The state is kept with a mark that they are being
closed, the file is written, and the state is kept without them. After a kill the same file is written again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.gateway.cell_text import LARGEST
from fedspan.gateway.scorer import Scorer, Seen, read_arrays

Array = NDArray[Any]

_NUMBERS = ("offset", "lines", "rows", "bad", "alarms", "written", "period", "closing", "inode")
#: The sums of a period, which the sites' sums of rows are for the next update.
SUMS = ("n", "mean", "products", "counts", "leaf_counts", "center_counts", "center_sums", "member_counts", "edges_sum")


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
    period, closing : int
        The number of the period whose sums these are; 1 while they are being closed.
    sums : dict
        Of the rows of the period: their number ``n``, ``mean`` (d,) and ``products`` about it (d, d), ``counts`` of
        scores up to, between and above the model's edges (q + 1,); and where the model has such members, rows in the
        leaves of its trees, rows and sums of rows by nearest centre, and counts of the members' scores.
    header : list of str
        The columns of CSV.
    before, inode : bytes, int
        The bytes just before `offset`, by which the file is known again after it was rotated; and its number on the
        disk, for the time before the first of them.
    """

    sums: dict[str, Array]
    offset: int = 0
    lines: int = 0
    rows: int = 0
    bad: int = 0
    alarms: int = 0
    written: int = 0
    period: int = 1
    closing: int = 0
    inode: int = 0
    header: list[str] = field(default_factory=list)
    before: bytes = b""

    @classmethod
    def empty(cls, scorer: Scorer) -> KeptSums:
        """Return the sums of no rows for a model."""
        return cls(no_sums(scorer))

    def add(self, X: Array, scorer: Scorer) -> Array:
        """Add rows (n, d), and return their scores (n,). Numbers whose products overflow are in no sum."""
        self.rows += len(X)
        X = scorer.scaled(X)
        with np.errstate(over="ignore", invalid="ignore"):
            seen = scorer.seen(X)
            found = scores = scorer.joined(seen.members)
        fits = np.abs(X).max(axis=1, initial=0.0) < LARGEST
        if not fits.all():
            X, scores = X[fits], scores[fits]
            seen = scorer.seen(X)
        m = len(X)
        if not m:
            return found
        own, n = self.sums, int(self.sums["n"])
        mean = X.mean(axis=0)
        D, apart = X - mean, mean - own["mean"]
        own["products"] = own["products"] + D.T @ D + np.outer(apart, apart) * (n * m / (n + m))
        own["mean"] = own["mean"] + apart * (m / (n + m))
        own["n"] = np.array(n + m)
        for name, new in counts_of(seen, scores, scorer).items():
            own[name] = own[name] + new
        if seen.nearest is not None:
            own["center_sums"] = own["center_sums"] + sums_by(seen.nearest, X, len(own["center_sums"]))
        return found

    def close(self, state: Path, folder: Path, scorer: Scorer) -> Path:
        """Close the period: its sums go to a file of their own, and the next period begins with none."""
        target = folder / f"{self.period:08d}.npz"
        if not self.closing:
            self.closing = 1
            self.save(state)
        _write(target, self.sums)
        self.sums, self.period, self.closing = no_sums(scorer), self.period + 1, 0
        self.save(state)
        return target

    def save(self, path: Path) -> None:
        """Replace the file."""
        arrays: dict[str, Any] = {name: np.int64(getattr(self, name)) for name in _NUMBERS}
        before = np.frombuffer(self.before, dtype=np.uint8)
        _write(path, {**arrays, **self.sums, "header": np.array(self.header, dtype=str), "before": before})

    @classmethod
    def load(cls, path: Path) -> KeptSums:
        """Read the file."""
        arrays = read_arrays(path)
        found = {name: int(arrays[name]) for name in _NUMBERS}
        header = [str(name) for name in arrays["header"]]
        sums = {name: arrays[name] for name in SUMS if name in arrays}
        return cls(sums, **found, header=header, before=arrays["before"].tobytes())


def read_sums(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read the sums of a gateway: of a closed period, or of its state."""
    arrays = read_arrays(path)
    return {name: arrays[name] for name in SUMS if name in arrays}


def no_sums(scorer: Scorer) -> dict[str, Array]:
    """Return the sums of no rows."""
    arrays, d = scorer.arrays, len(scorer.columns)
    found: dict[str, Any] = {"n": np.int64(0), "mean": np.zeros(d), "products": np.zeros((d, d))}
    edges = arrays["sketch_edges"]
    found |= {"counts": np.zeros(len(edges) + 1, dtype=np.int64), "edges_sum": np.float64(edges.sum())}
    if "depths" in arrays:
        found["leaf_counts"] = np.zeros(arrays["depths"].shape, dtype=np.int64)
    if "centers" in arrays:
        k = len(arrays["centers"])
        found |= {"center_counts": np.zeros(k, dtype=np.int64), "center_sums": np.zeros((k, d))}
    if "edges" in arrays:
        m, q = arrays["edges"].shape
        found["member_counts"] = np.zeros((m, q + 1), dtype=np.int64)
    return found


def counts_of(seen: Seen, scores: Array, scorer: Scorer, times: Array | None = None) -> dict[str, Array]:
    """Return the counts of rows that were seen: of scores, and where the model has such members, of their parts.

    With `times` (n,) each row counts as often; then its leaves are not counted.
    """
    found = {"counts": _between(scorer.arrays["sketch_edges"], scores, times)}
    if seen.leaves is not None and times is None:
        found["leaf_counts"] = leaf_counts(seen.leaves, scorer)
    if seen.nearest is not None:
        found["center_counts"] = _numbers_of(seen.nearest, times, len(scorer.arrays["centers"]))
    if "edges" in scorer.arrays:
        pairs = zip(scorer.arrays["edges"], seen.members, strict=True)
        found["member_counts"] = np.stack([_between(*pair, times) for pair in pairs])
    return found


def leaf_counts(leaves: Array, scorer: Scorer) -> Array:
    """Return the number of rows in each leaf of each tree, of rows that reach these."""
    shape = scorer.arrays["depths"].shape
    return np.bincount(leaves.ravel(), minlength=shape[0] * shape[1]).reshape(shape)


def sums_by(labels: Array, rows: Array, count: int) -> Array:
    """Return the sums (count, d) of the rows with each label."""
    sums, order = np.zeros((count, rows.shape[1])), np.argsort(labels, kind="stable")
    if len(order):
        some, starts = np.unique(labels[order], return_index=True)
        sums[some] = np.add.reduceat(rows[order], starts, axis=0)
    return sums


def _between(edges: Array, values: Array, times: Array | None) -> Array:
    return _numbers_of(np.searchsorted(edges, values, side="left"), times, len(edges) + 1)


def _numbers_of(labels: Array, times: Array | None, count: int) -> Array:
    return np.bincount(labels, times, count).astype(np.int64, copy=False)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
