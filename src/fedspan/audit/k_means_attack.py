"""Rows out of the sums of k-means rounds: the difference of two sums whose sets differ by one row is this row.

The attacker has the totals of all sites, also under a secure sum. It takes every two sums whose numbers of rows differ
by one and whose means are near, of any rounds, starts and centres. A single difference does not show whether it is a
row. But a row that changes its centre is found twice: where it left and where it came. So is the difference of its
two centres, before and after, which is no row: half of what is found twice may be rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from fedspan.arrays import Array
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.row_measures import nearest_rows, psnr
from fedspan.federation.calls.call import Collected
from fedspan.linalg.kernels.gaussian_kernel import squared_distances
from fedspan.linalg.kernels.nearest_centres import rounded_mean

if TYPE_CHECKING:
    from fedspan.audit.attack_case import Case


#: Each sum is compared with this many of the nearest ones.
_COMPARED = 8
#: What counts as equal, as a part of the length of a typical difference.
_SAME = 1e-6
#: Guesses whose nearest rows are searched for, at most.
_MEASURED = 5000


@dataclass(frozen=True)
class KMeansSums:
    """The sums (g, d) and counts (g,) of k-means rounds over sets of rows, about `shift` (d,), of `rounds` replies."""

    sums: Array = field(repr=False)
    counts: Array = field(repr=False)
    shift: Array = field(repr=False)
    rounds: int

    def candidates(self) -> Array:
        """Return the differences (c, d) of sums whose numbers of rows differ by one: each might be a row."""
        sums, counts = self._distinct()
        means = sums / counts[:, None]
        found = [sums[counts == 1]]
        for count in np.unique(counts):
            less, more = np.flatnonzero(counts == count), np.flatnonzero(counts == count + 1)
            if len(more):
                near = np.argsort(squared_distances(means[less], means[more]), axis=1)[:, :_COMPARED]
                found.append((sums[more[near]] - sums[less, None]).reshape(-1, sums.shape[1]))
        return np.concatenate(found)

    def _distinct(self) -> tuple[Array, Array]:
        """Return sums and counts, each once: a set that did not change adds and proves nothing."""
        typical = max(float(np.median(np.abs(self.sums))), 1e-300)
        marks = np.column_stack([np.rint(self.sums / (1e-6 * typical)), self.counts])
        once = np.sort(np.unique(marks, axis=0, return_index=True)[1])
        return self.sums[once], self.counts[once]


def k_means_sums(calls: Iterable[Collected]) -> KMeansSums | None:
    """Return the sums of k-means rounds in the calls of a journal, or ``None``."""
    centre, shift = np.zeros(0), np.zeros(0)
    sums: list[Array] = []
    counts: list[Array] = []
    for total in (call.replies.get("", {}) for call in calls):
        n: Any = total.get("n", 0)
        if {"sums", "counts", "spread"} <= set(total) and np.ndim(total["sums"]) == 2:
            used = np.asarray(total["counts"]) > 0
            if len(used):
                sums.append(np.asarray(total["sums"])[used])
                counts.append(np.asarray(total["counts"])[used])
        elif {"n", "centre", "shift", "scatter"} <= set(total) and n > 0:  # merged moments
            mean = np.asarray(total["centre"]) + total["shift"]
            squares = np.asarray(total["scatter"])
            if squares.shape == mean.shape:
                shift = rounded_mean(mean, np.maximum(squares / n, 0.0))
        elif {"n", "sum", "bad"} <= set(total) and n > 0:  # the mean
            centre = np.asarray(total["sum"]) / n
        elif {"n", "sum", "squares"} <= set(total) and n > 0 and np.shape(total["sum"]) == centre.shape:
            part = np.asarray(total["sum"]) / n
            shift = rounded_mean(centre + part, np.maximum(np.asarray(total["squares"]) / n - part**2, 0.0))
    if not sums or {part.shape[1] for part in sums} != {len(shift)}:
        return None
    return KMeansSums(np.concatenate(sums), np.concatenate(counts), shift, len(sums))


def on_k_means_sums(case: Case) -> Iterator[LeakEntry]:
    """Take differences of sums for rows, and trust those that are found twice."""
    given = case.received.k_means_sums
    if given is None:
        return
    H = given.candidates()
    typical = _typical(H) if len(H) else 1.0
    twice = np.zeros(len(H), dtype=np.bool_)
    if len(H) > 1:
        twice = np.isfinite(cKDTree(H).query(H, 2, distance_upper_bound=_SAME * typical)[0][:, 1])
    found = int(twice.sum())
    distinct = len(np.unique(np.rint(H[twice] / (_SAME * typical * 100)), axis=0))
    facts: dict[str, float | bool] = {"sums": len(given.sums), "differences": len(H), "found_twice": found}
    verdict = f"Of {len(H)} differences of sums {found} were found twice or more, {distinct} of them distinct"
    measures: dict[str, float] = {}
    rebuilt = None
    ways = _ways(case)
    if ways is None or case.truth is None:
        verdict += ". Give the true rows, and of a map the model that the run made, to see whether they are rows."
    else:
        seen, back = ways
        Z = seen(case.truth) - given.shift
        distances, which = cKDTree(Z).query(H, distance_upper_bound=_SAME * _typical(Z))
        exact = np.isfinite(distances)
        rows, right = len(np.unique(which[exact])), float(exact[twice].mean()) if found else 0.0
        measures["exact"] = rows / len(Z)
        verdict += f", and {right:.1%} of those found twice are rows" if found else ""
        verdict += f". {rows} of {len(Z)} rows are among the differences exactly, as the sums see them."
        facts |= {"exact_rows": rows, "right_of_found_twice": right}
        used = np.flatnonzero(twice) if found else np.arange(len(H))  # all are guesses where none can be trusted
        used = used[:: max(1, -(-len(used) // _MEASURED))]
        rebuilt = case.raw(back(H[used] + given.shift))
        if case.bounds is not None and len(used):
            true = case.truth[nearest_rows(H[used], Z)[0]]
            measures["psnr"] = psnr(rebuilt, case.raw(true), case.bounds)
    yield LeakEntry(
        "k-means sums: differences",
        f"{len(given.sums)} sums of rows, of {given.rounds} replies",
        "the totals of all sites, of every round",
        verdict,
        measures,
        {"exact": 0.0} if measures else {},
        facts,
        rebuilt,
    )


def _typical(vectors: Array) -> float:
    return max(float(np.median(np.sqrt(np.vecdot(vectors, vectors)))), 1e-300)


def _ways(case: Case) -> tuple[Callable[[Array], Array], Callable[[Array], Array]] | None:
    """Return the ways from rows to what was summed, and back; ``None`` where the axes are not known."""
    found, given = case.received.map, case.received.k_means_sums
    if found is not None:
        square = float(np.vdot(found.axes[0], found.axes[0]))
        return found.seen, lambda Z: found.mean + Z @ found.axes / square
    same = given is not None and case.truth is not None and case.truth.shape[1] == given.sums.shape[1]
    return (np.asarray, np.asarray) if same and case.received.of_rows else None
