"""Counts of the values of columns between edges, without the columns in memory.

A search by counts narrows an interval of each column from round to round. A site of many rows reads them in blocks,
once for every round, until the values inside the intervals are few. It keeps these, and later rounds need no row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.arrays import Counts, Vector
from fedspan.federation import Site
from fedspan.sums.parts.number_keys import PARTS, Keys, key_values, part_edges
from fedspan.sums.row_blocks import blocks, n_columns

#: Values that are kept inside the intervals, at most, and of scores; each takes 16 bytes.
_KEPT, _KEPT_SCORES = 2**24, 2**20
#: Columns of the scores of a stream, at most: they are in a file, which is read again fast.
_SCORES = 4


@dataclass(frozen=True)
class _Kept:
    """The distinct values inside intervals, rising, with their running counts; those up to `low` are `below`."""

    low: Keys
    high: Keys
    below: Counts
    values: list[tuple[Vector, Counts]]

    def holds(self, low: Keys, high: Keys) -> bool:
        """Return whether intervals lie within the intervals whose values are kept."""
        return len(low) == len(self.low) and bool((low >= self.low).all() and (high <= self.high).all())


def scores_of_stream(site: Site) -> bool:
    """Return whether the site sees a few numbers for each row of a stream, such as scores."""
    return site.streamed and n_columns(site) <= _SCORES


def counts_between(site: Site, low: Keys, high: Keys) -> tuple[Counts, int]:
    """Return the number (m, 257) of values up to each edge of m intervals, and of those that are not finite.

    Interval i is of column ``i % d``; one interval is of all columns.
    """
    d = n_columns(site)
    low, high = (np.broadcast_to(ends, max(d, len(ends))) for ends in (low, high))
    edges = key_values(part_edges(low, high))
    kept: list[_Kept] = site.cached("values inside", list)
    if kept and kept[0].holds(low, high):
        inside = zip(kept[0].values, edges, kept[0].below, strict=True)
        found = [below + up_to[np.searchsorted(own, at, side="right")] for (own, up_to), at, below in inside]
        return np.array(found), 0  # a table with bad values was refused before
    counts = np.zeros((len(edges), PARTS + 2), dtype=np.int64)
    inside_few, bad = _Inside(len(edges), min(_KEPT, _KEPT_SCORES) if scores_of_stream(site) else _KEPT), 0
    for X in blocks(site):
        columns = np.ascontiguousarray(X.T)
        bad += int(columns.size - np.count_nonzero(np.isfinite(columns)))
        for i, at in enumerate(edges):
            column = columns[i % d]
            part = np.searchsorted(at, column, side="left")
            counts[i] += np.bincount(part, minlength=PARTS + 2)
            if inside_few.few:
                inside_few.add(i, column[(part > 0) & (part <= PARTS)])
    up_to = np.cumsum(counts, axis=1)[:, :-1]
    kept[:] = [_Kept(low, high, up_to[:, 0], inside_few.counted())] if inside_few.few and not bad else []
    return up_to, bad


class _Inside:
    """The distinct values inside each of some intervals, and how often each is there, while they are `few`."""

    def __init__(self, intervals: int, most: int) -> None:
        self.few, self._most = True, most
        self._parts: list[list[tuple[Vector, Counts]]] = [[] for _ in range(intervals)]
        self._held = 0

    def add(self, interval: int, values: Vector) -> None:
        """Add the values of a block of rows."""
        own, times = np.unique(values, return_counts=True)
        self._parts[interval].append((own, times))
        self._held += len(own)
        if self._held > self._most:
            self._parts = [[_joined(parts)] for parts in self._parts]
            self._held = sum(len(own) for ((own, _),) in self._parts)
            self.few = self._held <= self._most // 2
            if not self.few:
                self._parts = []

    def counted(self) -> list[tuple[Vector, Counts]]:
        """Return the values of each interval, rising, and the number up to each, from 0 for none."""
        joined = map(_joined, self._parts)
        return [(own, np.concatenate([[0], np.cumsum(times)])) for own, times in joined]


def _joined(parts: list[tuple[Vector, Counts]]) -> tuple[Vector, Counts]:
    """Return the distinct values of several parts, and how often each is there."""
    values = np.concatenate([np.empty(0), *(own for own, _ in parts)])
    times = np.concatenate([np.empty(0, dtype=np.int64), *(times for _, times in parts)])
    own, place = np.unique(values, return_inverse=True)
    summed = np.zeros(len(own), dtype=np.int64)
    np.add.at(summed, place, times)
    return own, summed
