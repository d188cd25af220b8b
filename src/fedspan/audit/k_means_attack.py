"""Rows out of the sums of k-means rounds: the difference of two sums whose sets differ by one row is this row.

The attacker has the totals of all sites, under a secure sum, too. It takes every two sums whose numbers of rows differ
by one and whose means are near, of whatever rounds, starts and centres. Which differences are rows it cannot see at
once; but a row that changes its centre is found where it left and where it came. (So is what its two centres differ by,
before and after, which is no row: half of what is found twice may be rows.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.row_measures import psnr
from fedspan.linalg.kernels.nearest_centres import rounded_mean

if TYPE_CHECKING:
    from fedspan.audit.row_attacks import Case

Array = NDArray[Any]

#: Earlier and later sums that each is compared with.
_COMPARED = 8
#: What is the same, as a part of the length of a typical difference.
_SAME = 1e-6
_BLOCK = 512
#: Guesses whose nearest rows are looked for, at most.
_MEASURED = 5000


@dataclass(frozen=True)
class GivenSums:
    """The sums of k-means rounds, as the coordinator has them.

    Attributes
    ----------
    sums, counts : array (g, d), array (g,)
        Of all sets whose sums were given, about `shift`.
    shift : array (d,)
    n : int
        Number of all rows.
    rounds : int
        In how many replies they came.
    """

    sums: Array = field(repr=False)
    counts: Array = field(repr=False)
    shift: Array = field(repr=False)
    n: int
    rounds: int

    def candidates(self) -> Array:
        """Return the differences (c, d) of sums whose numbers of rows differ by one: what a row might be."""
        sums, counts = self._distinct()
        means = sums / counts[:, None]
        lengths = np.vecdot(means, means)
        found = [sums[counts == 1]]
        m = min(_COMPARED, len(means) - 1)
        for start in range(0, len(means) if m else 0, _BLOCK):
            some = np.arange(start, min(start + _BLOCK, len(means)))
            apart = lengths - 2.0 * means[some] @ means.T
            # Only sums of one row more are of use.
            apart[counts != (counts[some] + 1)[:, None]] = np.inf
            near = np.argpartition(apart, m, axis=1)[:, :m]
            use = np.isfinite(np.take_along_axis(apart, near, axis=1))
            left = np.repeat(some, use.sum(axis=1))
            found.append(sums[near[use]] - sums[left])
        return np.concatenate(found)

    def _distinct(self) -> tuple[Array, Array]:
        """Return sums and counts, each once: a set that did not change says nothing new, and proves nothing."""
        typical = max(float(np.median(np.abs(self.sums))), 1e-300)
        marks = np.column_stack([np.rint(self.sums / (1e-6 * typical)), self.counts])
        once = np.sort(np.unique(marks, axis=0, return_index=True)[1])
        return self.sums[once], self.counts[once]


def sums_in(entries: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the totals of k-means rounds and of moments in the calls of a journal, by what they are."""
    for entry in entries:
        total = entry.collected.replies.get("", {})
        if {"sums", "counts", "spread"} <= set(total) and np.ndim(total["sums"]) == 2:
            yield "sums", total
        elif {"n", "sum", "bad"} <= set(total):
            yield "first", total
        elif {"n", "sum", "squares"} <= set(total):
            yield "second", total


def given_sums(entries: Iterable[Any]) -> GivenSums | None:
    """Return the sums of k-means rounds in a journal, or ``None``."""
    centre, shift, n = np.zeros(0), np.zeros(0), 0
    sums: list[Array] = []
    counts: list[Array] = []
    for kind, total in sums_in(entries):
        if kind == "first" and total["n"] > 0:
            centre = total["sum"] / total["n"]
        elif kind == "second" and total["n"] > 0 and np.shape(total["sum"]) == centre.shape:
            part = total["sum"] / total["n"]
            variance = np.maximum(total["squares"] / total["n"] - part**2, 0.0)
            n, shift = int(total["n"]), rounded_mean(centre + part, variance)
        elif kind == "sums" and len(total["counts"]):
            some = total["counts"] > 0
            sums.append(np.asarray(total["sums"])[some])
            counts.append(np.asarray(total["counts"])[some])
    if not sums or {part.shape[1] for part in sums} != {len(shift)}:
        return None
    return GivenSums(np.concatenate(sums), np.concatenate(counts), shift, n, len(sums))


def rows_in_differences(case: Case) -> LeakEntry | None:
    """Take differences of sums for rows, and trust those that are found twice."""
    given = case.received.k_means_sums
    if given is None:
        return None
    H = given.candidates()
    typical = float(np.median(np.sqrt(np.vecdot(H, H)))) if len(H) else 1.0
    twice = np.zeros(len(H), dtype=np.bool_)
    if len(H) > 1:
        twice = _have_doubles(H, _SAME * typical)
    trusted = H[twice]
    facts: dict[str, float | bool] = {"sums": len(given.sums), "differences": len(H), "found_twice": int(twice.sum())}
    distinct = len(np.unique(np.rint(trusted / (_SAME * max(typical, 1e-300) * 100)), axis=0))
    said = f"Of {len(H)} differences of sums {int(twice.sum())} were found twice or more, {distinct} of them distinct"
    measures: dict[str, float] = {}
    rebuilt = None
    way = _as_rows(case)
    if way is not None and case.truth is not None:
        seen, back = way
        Z = seen(case.truth) - given.shift
        which = _equal_rows(H, Z, _SAME * max(float(np.median(np.sqrt(np.vecdot(Z, Z)))), 1e-300))
        exact = which >= 0
        rows, right = len(np.unique(which[exact])), float(exact[twice].mean()) if twice.any() else 0.0
        measures["exact"] = rows / len(Z)
        said += f", and {right:.1%} of those found twice are rows" if twice.any() else ""
        said += f". {rows} of {len(Z)} rows are among the differences exactly, as the sums see them."
        facts |= {"exact_rows": rows, "right_of_found_twice": right}
        # Without any to trust all of them are the guess.
        used = np.flatnonzero(twice if twice.any() else np.ones(len(H), dtype=np.bool_))
        used = used[:: max(1, -(-len(used) // _MEASURED))]
        rebuilt = back(H[used] + given.shift)
        if case.bounds is not None and len(used):
            true = case.truth[_nearest_rows(H[used], Z)]
            measures["psnr"] = psnr(case.raw(rebuilt), case.raw(true), case.bounds)
        rebuilt = case.raw(rebuilt)
    else:
        said += ". Give the true rows, and of a map the model that the run made, to see whether they are rows."
    base = {"exact": 0.0} if measures else {}
    return LeakEntry(
        "k-means sums: differences",
        f"{len(given.sums)} sums of rows, of {given.rounds} replies",
        "the totals of all sites, of every round",
        said,
        measures,
        base,
        facts,
        rebuilt,
    )


def _as_rows(case: Case) -> Any:
    """Return the ways from rows to what was summed, and back; ``None`` where the axes are not known."""
    found, given = case.received.map, case.received.k_means_sums
    if found is not None:
        square = float(np.vdot(found.axes[0], found.axes[0]))
        return found.seen, lambda Z: found.mean + Z @ found.axes / square
    same = given is not None and case.truth is not None and case.truth.shape[1] == given.sums.shape[1]
    return (np.asarray, np.asarray) if same and case.received.of_rows else None


def _have_doubles(H: Array, same: float) -> NDArray[np.bool_]:
    """Return which vectors another one is equal to: neighbours along one direction are compared."""
    along = H @ _direction(H.shape[1])
    order = np.argsort(along)
    found = np.zeros(len(H), dtype=np.bool_)
    for step in range(1, 6):
        left, right = order[:-step], order[step:]
        near = along[right] - along[left] <= same
        left, right = left[near], right[near]
        D = H[left] - H[right]
        equal = np.vecdot(D, D) <= same**2
        found[left[equal]] = found[right[equal]] = True
    return found


def _equal_rows(H: Array, Z: Array, same: float) -> NDArray[np.intp]:
    """Return the row of Z that each vector is equal to, or -1."""
    along = Z @ _direction(Z.shape[1])
    order = np.argsort(along)
    places = np.searchsorted(along[order], H @ _direction(Z.shape[1]))
    found = np.full(len(H), -1, dtype=np.intp)
    for step in (-2, -1, 0, 1):
        row = order[np.clip(places + step, 0, len(Z) - 1)]
        D = H - Z[row]
        found[np.vecdot(D, D) <= same**2] = row[np.vecdot(D, D) <= same**2]
    return found


def _nearest_rows(H: Array, Z: Array) -> NDArray[np.intp]:
    lengths = np.vecdot(Z, Z)
    blocks = (H[start : start + _BLOCK] for start in range(0, len(H), _BLOCK))
    return np.concatenate([np.argmin(lengths - 2.0 * block @ Z.T, axis=1) for block in blocks])


def _direction(d: int) -> Array:
    direction = np.random.default_rng(0).standard_normal(d)
    return np.asarray(direction / np.linalg.norm(direction))
