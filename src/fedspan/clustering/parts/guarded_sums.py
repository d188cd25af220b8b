"""Sums of sets of rows, no two of which may differ by few rows: their difference would be these rows.

Centres are moved as in Lloyd's algorithm, but a sum is asked for only where it is safe. Sites remember which of their
rows were in the sums that they gave. Before a round's sums they are asked how many rows each set has, and how many of
these it shares with the sets that it might be too much alike: those given before, and those of the other codebooks now,
whose means are nearest. A set's sum is asked for if

    it has at least `least_rows` rows,
    it differs from each of these by none (then its sum is known) or by at least `least_rows` rows,
    and all rows of its codebook that are in no sum, whose sum is what is left of that of all rows, are none or as many.

Other centres stay where they are. That is a rule for two sums at a time: sums and differences of more of them are not
looked at, and neither are sums with and without a site that failed to answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.clustering.parts.k_means_starts import Moved
from fedspan.clustering.parts.rows_by_centre import labelled, of_centres, sums_by_centre
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg.kernels.nearest_centres import squared_apart
from fedspan.sums.plausible_totals import whole

Matrix = NDArray[np.float64]
Indices = NDArray[np.int32]

#: Sets that each one is compared with, and numbers of a reply up to which it may be more: with few centres, all.
_COMPARED = 20
_NUMBERS = 2**16
_BLOCK_BYTES = 2**25


@step("clustering.overlaps", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_overlaps(site: Site, centres: Matrix, others: Indices) -> dict[str, Any]:
    """Leaves the site: counts of rows closest to each centre, and of these in some other sets; squared distances.

    The distances are those to the closest centres, summed up. `others` (b, k, m, 3) says which sets: the number of the
    sum that it was in (one that was not given yet: now), its codebook there, its centre.
    """
    b, k, _ = centres.shape
    m = others.shape[2]
    counts, inertia = np.zeros((b, k), dtype=np.int64), np.zeros(b)
    shared = np.zeros((b * k, m), dtype=np.int64)
    given = int(site.state.get("sums given", 0))
    memory = {int(t): site.state.get(f"summed {t}") for t in np.unique(others[..., 0]) if t < given}
    at = 0
    for X, labels in labelled(site, centres):
        inertia += squared_apart(X, centres, labels).sum(axis=0)
        rows = np.arange(at, at + len(X))
        for book, own in enumerate(labels.T):
            counts[book] += np.bincount(own, minlength=k)
            asked = others[book, own]  # (rows, m, 3)
            inside = np.zeros(asked.shape[:2], dtype=np.bool_)
            for t in np.unique(asked[..., 0]):
                there = labels if t >= given else memory.get(int(t))
                if there is not None:
                    now = there if t >= given else there[rows]
                    books = np.minimum(asked[..., 1], now.shape[1] - 1)
                    held = np.take_along_axis(now, books, axis=1)
                    inside |= (asked[..., 0] == t) & (held == asked[..., 2])
            np.add.at(shared, own + book * k, inside)
        at += len(X)
    site.state["sums counted"] = centres
    return {"counts": counts, "inertia": inertia, "shared": shared.reshape(b, k, m)}


@step("clustering.guarded_means", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_guarded_means(site: Site, centres: Matrix, wanted: NDArray[np.bool_], number: int) -> dict[str, Any]:
    """Leaves the site: of each `wanted` centre the number and sum of its rows there, and their squared distances.

    It remembers which rows these are, and gives no sums of sets that it did not count and compare just before.
    """
    if not np.array_equal(site.state.get("sums counted", np.zeros(0)), centres):
        raise InputError("sums are given only of sets that were counted, and compared with those given before, first")
    found = sums_by_centre(site, centres)
    given = np.where(wanted[np.arange(len(centres)), found.labels], found.labels, np.int32(-1))
    site.state[f"summed {number}"], site.state["sums given"] = given, number + 1
    site.state["sums counted"] = np.zeros(0)
    return found.of(wanted)


@dataclass
class GuardedSums:
    """The sums that were given so far: which sets (g, 3), how many rows each has (g,), and their means (g, d)."""

    fed: Federation
    least_rows: int
    rounds: int = 0
    sets: Indices = field(default_factory=lambda: np.empty((0, 3), dtype=np.int32))
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    means: Matrix = field(default_factory=lambda: np.empty((0, 0)))

    def moved(self, C: Matrix) -> Moved:
        """Move each centre (b, k, d) to the mean of its rows, where that may be asked for or is known."""
        b, k, d = C.shape
        which = self._alike(C)
        pool = np.concatenate([self.sets, self._now(b, k)])
        told = self.fed.sum(local_overlaps, centres=C, others=pool[which])
        first = whole(told, counts=(b, k), inertia=(b,), shared=which.shape)
        counts = first["counts"]
        sizes = np.concatenate([self.sizes, counts.ravel()])
        differ = counts[..., None] + sizes[which] - 2 * first["shared"]
        # Where there is nothing to compare with, sets of the same codebook fill the places: they share no row.
        own = (which - len(self.sets)) // k == np.arange(b)[:, None, None]
        differ[own] = self.least_rows
        wanted, known = self._chosen(counts, differ, which)
        moved, spread = C.copy(), np.zeros((b, k))
        moved[known >= 0] = self.means[known[known >= 0]] if (known >= 0).any() else moved[known >= 0]
        if wanted.any():
            some = (int(wanted.sum()),)
            answer = self.fed.sum(local_guarded_means, centres=C, wanted=wanted, number=self.rounds)
            total = whole(answer, sums=(*some, d), counts=some, spread=some)
            # A site that was in the first sum may be missing in the second.
            enough = total["counts"] >= self.least_rows
            means = total["sums"] / np.maximum(total["counts"], 1)[:, None]
            moved[wanted] = np.where(enough[:, None], means, C[wanted])
            shift = np.vecdot(moved[wanted] - C[wanted], moved[wanted] - C[wanted])
            spread[wanted] = np.maximum(total["spread"] - total["counts"] * shift, 0.0)
            self._remember(wanted, total["counts"], means)
        return Moved(moved, counts, spread, first["inertia"])

    def _chosen(
        self, counts: NDArray[np.int64], differ: NDArray[np.int64], which: NDArray[np.intp]
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Return the sets (b, k) whose sums may be asked for, and for each the given one that it equals, or -1."""
        b, k = counts.shape
        old, least = len(self.sets), self.least_rows
        same, alike = differ == 0, (differ > 0) & (differ < least)
        known = np.where(same & (which < old), which, -1).max(axis=2)
        wanted = (counts >= least) & (known < 0) & ~(alike & (which < old)).any(axis=2)
        # Of two that are too much alike now the first may be asked for; of two that are the same one is enough.
        flat = wanted.ravel()
        rivals = (alike | same) & (which >= old)
        for book, centre in np.argwhere(rivals.any(axis=2)):
            me, others = book * k + centre, which[book, centre][rivals[book, centre]] - old
            if flat[me] and flat[others[others < me]].any():
                flat[me] = False
            elif flat[me]:
                flat[others] = False
        for book in range(b):
            self._leave_enough(counts[book], wanted[book], known[book])
        return wanted, np.where(counts > 0, known, -1)

    def _leave_enough(self, counts: NDArray[np.int64], wanted: NDArray[np.bool_], known: NDArray[np.intp]) -> None:
        """Ask for fewer sums where few rows would be in none: what is left of all rows is their sum."""
        while 0 < int(counts[~wanted & (known < 0)].sum()) < self.least_rows and wanted.any():
            wanted[np.where(wanted, counts, counts.max() + 1).argmin()] = False

    def _alike(self, C: Matrix) -> NDArray[np.intp]:
        """Return which sets (b, k, m) each is to be compared with: given ones, then those now, by number."""
        b, k, d = C.shape
        flat = C.reshape(b * k, d)
        points = np.concatenate([self.means.reshape(-1, d), flat])
        old = len(self.sets)
        m = min(max(_COMPARED, _NUMBERS // (b * k)), max(old + (b - 1) * k, 1))
        found = np.empty((b * k, m), dtype=np.intp)
        lengths = np.vecdot(points, points)
        rows = max(16, _BLOCK_BYTES // (8 * len(points)))
        for start in range(0, b * k, rows):
            some = np.arange(start, min(start + rows, b * k))
            apart = lengths - 2.0 * flat[some] @ points.T
            # Sets of one codebook have no row in common.
            own = np.arange(b * k) // k == (some // k)[:, None]
            apart[:, old:][own] = np.inf
            found[some] = np.argpartition(apart, m - 1, axis=1)[:, :m]
        return found.reshape(b, k, m)

    def _now(self, b: int, k: int) -> Indices:
        books, centres = np.divmod(np.arange(b * k, dtype=np.int32), k)
        return np.stack([np.full(b * k, self.rounds, dtype=np.int32), books, centres], axis=1)

    def _remember(self, wanted: NDArray[np.bool_], sizes: NDArray[np.int64], means: Matrix) -> None:
        new = self._now(*wanted.shape)[wanted.ravel()]
        self.sets = np.concatenate([self.sets, new])
        self.sizes = np.concatenate([self.sizes, sizes])
        self.means = np.concatenate([self.means.reshape(-1, means.shape[1]), means])
        self.rounds += 1
