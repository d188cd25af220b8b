"""Searches for rows in combinations of two: differences of sums and of means, and sums of two rows.

Where the counts of means are in the messages, or the weights are 1, plain differences are compared with rows. Otherwise
both weights are unknown: a row then lies in the plane of two messages, or a message in the plane of two rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.row_chances import EQUAL, LEVEL, Space
from fedspan.audit.parts.row_forms import direction_space, evenly_chosen, plain_space
from fedspan.audit.parts.search_task import VectorTask

#: Vectors of one source of which all differences are formed, and counts of a reply that may be those of its means.
_MOST_PAIRED = 3000
_MOST_COUNTS = 8
#: Planes of vectors whose angle is less are lines up to rounding; rows in planes are exact up to rounding, too.
_THIN, _EXACT = 1e-8, 1e-12


def search_differences(task: VectorTask) -> None:
    """Look for rows, or their squares, as differences of two vectors of one source, or of these times their counts."""
    rng = np.random.default_rng(0)
    spaces = [plain_space(name, task.views[name], task.bits) for name in ("", "centred")]
    spaces.append(plain_space("squared", np.square(task.views[""]), task.bits))
    sources = list(task.sources())
    counts = _counts(task)
    for _, members in sources:
        task.findings.limit("differences", len(members), _MOST_PAIRED, "vectors of one source")
        V, owner = _with_counts(task, evenly_chosen(members, _MOST_PAIRED)[0], counts)
        for space in spaces:
            pairs = _likely_pairs(space, V, rng)
            if len(pairs) > 1_000_000:
                task.findings.cut["differences"] = "differences: ended after a million likely pairs"
            if not pairs:
                continue
            more, less = np.array(pairs).T
            D = V[more] - V[less]
            which, chances = space.hits(D)
            # Neither of the two is the row itself, which the search for rows finds.
            small = np.abs(V[less]).max(axis=1) <= EQUAL * np.abs(D).max(axis=1)
            chances = np.where(small | (np.ptp(D, axis=1) == 0) | (owner[more] == owner[less]), 1.0, chances)
            for pair in np.flatnonzero(chances * len(V) ** 2 * len(spaces) * len(sources) < LEVEL):
                place = task.places[max(owner[more[pair]], owner[less[pair]])]
                task.findings.found["differences"].add(place, [task.keep[which[pair]]], space.name)


def _likely_pairs(space: Space, V: Matrix, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return the pairs of vectors whose difference is as long as some row in one random direction."""
    A = space.into(V)
    aim = rng.standard_normal(A.shape[1])
    marks, wanted = A @ aim, np.sort(space.rows @ aim)
    size = 1e-12 * np.abs(A).sum(axis=1) + 1e-12
    pairs: list[tuple[int, int]] = []
    for i in range(len(V)):
        apart = marks - marks[i]
        place = np.minimum(np.searchsorted(wanted, apart), len(wanted) - 1)
        gap = np.minimum(np.abs(wanted[place] - apart), np.abs(wanted[np.maximum(place - 1, 0)] - apart))
        likely = np.flatnonzero(gap <= 4 * np.abs(aim).max() * (size + size[i])).tolist()
        pairs += [(j, i) for j in likely if j != i]
        if len(pairs) > 1_000_000:
            break
    return pairs


def _counts(task: VectorTask) -> dict[Any, list[float]]:
    """Return the numbers of each reply that may be counts of rows: a mean times its count is a sum."""
    counts: dict[Any, set[float]] = defaultdict(set)
    for value in task.sent.values:
        place, numbers = value.place, np.ravel(value.numbers)
        if numbers.size <= 1000 and numbers.dtype.kind in "fui":
            whole = numbers[(numbers > 1) & (numbers <= len(task.rows)) & (numbers == np.rint(numbers))]
            counts[place.run, place.call, place.site] |= set(whole.astype(float).tolist())
    found = {}
    for key, ours in counts.items():
        size = task.sent.sizes.get(key[2], len(task.rows))
        own = [float(size - less) for less in (0, 1) if size - less > 1]
        found[key] = list(dict.fromkeys([*own, *sorted(ours, reverse=True)]))[:_MOST_COUNTS]
    return found


def _with_counts(task: VectorTask, members: Array, counts: dict[Any, list[float]]) -> tuple[Matrix, Array]:
    """Return vectors, as they are and times each count of their reply if there is room, and which each one is of."""
    owners, factors = [members], [np.ones(len(members))]
    room = max(0, _MOST_PAIRED - len(members))
    for i in members.tolist():
        place = task.places[i]
        mine = counts.get((place.run, place.call, place.site), [])[:room]
        room -= len(mine)
        owners.append(np.full(len(mine), i))
        factors.append(np.array(mine))
    owner = np.concatenate(owners).astype(int)
    return task.vectors[owner] * np.concatenate(factors)[:, None], owner


def search_planes(task: VectorTask) -> None:
    """Look for rows in the planes of two messages of one source, and for messages in the planes of two rows."""
    m = task.rows.shape[1]
    space = direction_space(task.unique, task.bits, "", 0)
    least = 2.0 ** -(task.bits * max(0.0, 1 - 2 / m))  # two weights take the information of two columns
    left = space.dimension - 1
    if m < 4 or left < 1:
        task.findings.cut["planes"] = (
            "combinations with unknown weights: not possible, as the rows have too few columns"
        )
        return
    sources = list(task.sources())
    work = task.findings.WORK / (2 * max(1, len(sources))) / m
    for site, members in sources:
        ours = task.rows_of(site)
        V, X = task.vectors[members], task.unique[ours]
        for of_rows in (False, True):
            first, third = (X, V) if of_rows else (V, X)
            most = max(50, int(np.sqrt(work / 4)))
            part, chosen = evenly_chosen(first, min(most, max(50, int(work / (len(first) + len(third))))))
            task.findings.limit("planes", len(first), len(part), "rows" if of_rows else "vectors of one source")
            tests = len(part) ** 2 * len(sources) * 2
            for i, j, k, apart in _in_planes(part, third):
                row = ours[k] if not of_rows else ours[chosen[i]]
                chance = len(third) * max(apart**left, float(least[row]))
                if chance * tests >= LEVEL:
                    continue
                if of_rows:
                    rows, place = task.keep[ours[chosen[[i, j]]]], task.places[members[k]]
                    task.findings.found["two rows"].add(place, rows.tolist())
                else:
                    place = task.places[max(members[chosen[i]], members[chosen[j]])]
                    task.findings.found["differences"].add(place, [task.keep[row]], "times unknown counts")


def _in_planes(pairs: Matrix, points: Matrix) -> Iterator[tuple[int, int, int, float]]:
    """Yield i, j, k and the distance on the unit sphere where points k lie in the plane of pairs i and j.

    For each i everything is projected to the complement of i, where j and k are then the same direction.
    """
    A = pairs / np.linalg.norm(pairs, axis=1, keepdims=True)
    B = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-300)
    aim = np.random.default_rng(3).standard_normal(A.shape[1]) / np.sqrt(A.shape[1])
    for i in range(len(A) - 1):
        S, T = (C - (C @ A[i])[:, None] * A[i] for C in (A[i + 1 :], B))
        long, reach = (np.linalg.norm(C, axis=1) for C in (S, T))
        near, far = np.flatnonzero(long > _THIN), np.flatnonzero(reach > 1e-4)
        S, T = S[near] / long[near, None], T[far] / reach[far, None]
        noise = _EXACT + 1e-15 / long[near] + 1e-15 / 1e-4
        marks, wanted = np.abs(S @ aim), np.abs(T @ aim)
        order = np.argsort(wanted)
        first = np.searchsorted(wanted[order], marks - 4 * noise)
        last = np.searchsorted(wanted[order], marks + 4 * noise)
        for j in np.flatnonzero(last > first):
            for k in order[first[j] : last[j]]:
                apart = min(np.linalg.norm(S[j] - T[k]), np.linalg.norm(S[j] + T[k]))
                if apart <= 4 * noise[j]:
                    yield i, i + 1 + int(near[j]), int(far[k]), float(max(apart, noise[j]))
