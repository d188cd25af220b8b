"""Sums of sets of rows, no two of which differ by few rows: the difference of two sums would reveal these rows.

Centres move as in Lloyd's algorithm, but a sum is requested only where it is safe. Sites remember which of their rows
were in the sums that they sent. Before a round's sums each site reports how many rows each set has. It also reports how
many of these it shares with the sets that it might resemble too much. These are the sets sent before and those of the
other codebooks now, whose means are nearest. A set's sum is requested if

    it has at least `least_rows` rows,
    it differs from each of these by none (then its sum is known) or by at least `least_rows` rows,
    and the rows of its codebook that are in no sum, which is the rest of the sum of all rows, are 0 or as many.

Other centres stay where they are. The rule is for two sums at a time. It does not cover sums and differences of more
of them, or sums with and without a site that failed to answer.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts, Matrix
from fedspan.clustering.parts.rows_by_centre import (
    Moved,
    Wanted,
    labelled,
    local_counts,
    local_means,
    means_of,
    of_centres,
)
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Stack, Whole
from fedspan.sums.plausible_totals import sum_of_all, whole

#: Sets that each one is compared with, and numbers of a reply up to which it may be more: with few centres, all.
_COMPARED = 20
_NUMBERS = 2**16
_BLOCK_BYTES = 2**25
#: The number of codebooks whose sums were sent before.
Given = Annotated[int, Whole(0, 2**20)]


@step("clustering.overlaps", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_overlaps(
    site: Site, centres: Stack, others: Annotated[Counts, ArrayOf("whole", 4, least=0)], given: Given
) -> dict[str, Any]:
    """Leaves the site: counts of rows closest to each centre, and of these in some other sets; squared distances.

    The distances are those to the closest centres, summed. `others` (b, k, m, 2) names sets by codebook and centre:
    the codebooks of all `given` sums are counted first, then those of `centres`.
    """
    b, k, m = others.shape[:3]
    if (b, k) != centres.shape[:2]:
        raise InputError(f"sets to compare {others.shape} and centres {centres.shape} do not fit together")
    shared = np.zeros((b, k * m), dtype=np.int64)
    absent = np.full(len(site), -1, dtype=np.int32)  # this site was not in that sum
    before = [np.asarray(site.state.get(f"summed {book}", absent)) for book in range(given)]
    at = 0
    for X, labels in labelled(site, centres):
        held = np.column_stack([*(summed[at : at + len(X)] for summed in before), labels])
        for book, own in enumerate(labels.T):
            inside = np.take_along_axis(held, others[book, own, :, 0], axis=1) == others[book, own, :, 1]
            row, place = np.nonzero(inside)
            shared[book] += np.bincount(own[row] * m + place, minlength=k * m)
        at += len(X)
    site.state["sums counted"] = centres
    return {**local_counts(site, centres), "shared": shared.reshape(b, k, m)}


@step("clustering.guarded_means", reveals="sums", fewest=of_centres, fewest_in_sums=False)
def local_guarded_means(site: Site, centres: Stack, wanted: Wanted, given: Given) -> dict[str, Any]:
    """Leaves the site: of each `wanted` centre the number and sum of its rows there, and their squared distances.

    It remembers which rows these are, and sends no sums of sets that it did not count and compare in the call before.
    """
    if not np.array_equal(site.state.get("sums counted", np.zeros(0)), centres):
        raise InputError("a site sends sums only of sets that it counted, and compared with those sent before, first")
    labels = np.concatenate([np.empty((0, len(centres)), np.int32), *[own for _, own in labelled(site, centres)]])
    for book, own in enumerate(labels.T):
        site.state[f"summed {given + book}"] = np.where(wanted[book, own], own, np.int32(-1))
    site.state["sums counted"] = np.zeros(0)
    return local_means(site, centres, wanted)


class GuardedSums:
    """The sums sent so far: which sets (g, 2), by codebook and centre, their numbers of rows (g,) and means (g, d)."""

    def __init__(self, fed: Federation, least_rows: int, columns: int) -> None:
        self.fed, self.least_rows = fed, least_rows
        self.given = 0
        self.sets = np.empty((0, 2), dtype=np.int32)
        self.sizes: Counts = np.empty(0, dtype=np.int64)
        self.means: Matrix = np.empty((0, columns))

    def moved(self, C: Matrix) -> Moved:
        """Move each centre (b, k, d) to the mean of its rows, where that may be requested or is known."""
        b, k, _ = C.shape
        which = self._alike(C)
        books, centres = np.divmod(np.arange(b * k, dtype=np.int32), np.int32(k))
        now = np.stack([books + np.int32(self.given), centres], axis=1)
        others = np.concatenate([self.sets, now])[which]
        first = sum_of_all(self.fed, local_overlaps, centres=C, others=others, given=self.given)
        whole(first, counts=(b, k), inertia=(b,), shared=which.shape)
        counts = first["counts"]
        sizes = np.concatenate([self.sizes, counts.ravel()])
        differ = counts[..., None] + sizes[which] - 2 * first["shared"]
        # Where there is nothing to compare with, sets of the same codebook fill the places: they share no row.
        own = (which - len(self.sets)) // k == np.arange(b)[:, None, None]
        differ[own] = self.least_rows
        wanted, known = self._chosen(counts, differ, which)
        moved, spread = C.copy(), np.zeros((b, k))
        moved[known >= 0] = self.means[known[known >= 0]]
        if wanted.any():
            least = self.least_rows
            found = means_of(self.fed, local_guarded_means, C, wanted, least, given=self.given)
            means, summed, spread[wanted], _ = found
            moved[wanted] = means
            self.sets = np.concatenate([self.sets, now[wanted.ravel()]])
            self.sizes = np.concatenate([self.sizes, summed])
            self.means = np.concatenate([self.means, means])
            self.given += b
        return Moved(moved, counts, spread, first["inertia"])

    def _chosen(
        self, counts: Counts, differ: Counts, which: NDArray[np.intp]
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Return the sets (b, k) whose sums may be requested, and for each the earlier one that it equals, or -1."""
        k, old, least = counts.shape[1], len(self.sets), self.least_rows
        same, alike = differ == 0, (differ > 0) & (differ < least)
        known = np.where(same & (which < old), which, -1).max(axis=2)
        wanted = (counts >= least) & (known < 0) & ~(alike & (which < old)).any(axis=2)
        # Of two that are too much alike now the first may be requested; of two that are the same one is enough.
        flat = wanted.ravel()
        rivals = (alike | same) & (which >= old)
        for book, centre in np.argwhere(rivals.any(axis=2)):
            me, others = book * k + centre, which[book, centre][rivals[book, centre]] - old
            if flat[me] and flat[others[others < me]].any():
                flat[me] = False
            elif flat[me]:
                flat[others] = False
        # Few rows that are in no sum would be the rest of all rows: then fewer sums are requested.
        for rows, chosen, before in zip(counts, wanted, known, strict=True):
            while 0 < int(rows[~chosen & (before < 0)].sum()) < least and chosen.any():
                chosen[np.where(chosen, rows, rows.max() + 1).argmin()] = False
        return wanted, np.where(counts > 0, known, -1)

    def _alike(self, C: Matrix) -> NDArray[np.intp]:
        """Return which sets (b, k, m) each is to be compared with: earlier ones, then those now, by number."""
        b, k, d = C.shape
        flat = C.reshape(b * k, d)
        points = np.concatenate([self.means, flat])
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
