"""The search for rotated rows: three or more vectors, of whatever width, with the mutual distances of rows.

A rotation, a reflection and a shift keep distances, and a factor keeps their ratios. So do further columns of zeros.
Points can be made again from their distances, or their inner products, but for a rotation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.row_chances import LEVEL, step
from fedspan.audit.parts.row_forms import some_triples
from fedspan.audit.parts.search_task import VectorTask, usable
from fedspan.audit.sent_values import Place

#: Relative differences of distances that count as equal; pairs of rows that are tried; vectors of one group.
_EQUAL = 1e-6
_HYPOTHESES = 3e7
_MOST = 500


def search_rotations(task: VectorTask) -> None:
    """Look for groups of vectors, of one array or of one key over many calls, that are rows but for a rotation."""
    m, groups = task.rows.shape[1], _groups(task)
    work = 0.0
    spread = np.where(task.rows.std(axis=0) > 0, task.rows.std(axis=0), 1.0)
    for name, scale in (("", 1.0), ("standardised", spread)):
        rows = task.unique / scale
        distances: dict[str, tuple[Matrix, Array, Matrix]] = {}
        for place, V in groups:
            ours = task.rows_of(place.site)
            work += len(ours) ** 2
            if work > _HYPOTHESES:
                task.findings.cut["rotated rows"] = (
                    f"rotated rows: {_HYPOTHESES:.0e} pairs of rows were tried, and more exist"
                )
                return
            if place.site not in distances:
                distances[place.site] = _sorted(_distances(rows[ours]))
            found, apart = _matched(V, distances[place.site])
            bits = min(_bits(distances[place.site][0], apart), _bits(_distances(V[:50]), apart))
            if _beyond_chance(len(found), bits, len(ours), m, len(groups)):
                task.findings.found["rotated rows"].add(place, task.keep[ours[found]].tolist(), name)


def _groups(task: VectorTask) -> list[tuple[Place, Matrix]]:
    """Return groups of at least three vectors with at least two entries that are not recognised as rows already."""
    known = task.findings.known("rows", "scaled rows", "scaled columns", "functions", "two rows")
    groups: list[tuple[Place, Matrix]] = []
    calls: dict[Any, list[tuple[Place, Matrix]]] = defaultdict(list)
    for value in task.sent.values:
        if value.place in known:
            continue
        for numbers in (value.numbers, *value.readings):
            if numbers.dtype.kind in "fiu" and numbers.ndim == 2 and min(numbers.shape) > 1:
                groups += [(value.place, np.asarray(part, dtype=np.float64)) for part in (numbers, numbers.T)]
                groups += [(value.place, points) for points in _points_behind(numbers)]
            elif numbers.dtype.kind in "fiu" and numbers.ndim == 1 and len(numbers) > 1:
                place, m = value.place, task.rows.shape[1]
                calls[place.run, place.key, place.site, len(numbers)].append((place, numbers))
                groups += [(place, numbers.reshape(-1, m).astype(float))] if len(numbers) % m == 0 else []
    groups += [(parts[0][0], np.stack([part for _, part in parts]).astype(float)) for parts in calls.values()]
    return [(place, V[good][:_MOST]) for place, V in groups if (good := usable(V)).sum() > 2]


def _points_behind(products: Array) -> Iterator[Matrix]:
    """Yield points whose inner products, distances or squared distances a symmetric matrix may have."""
    S = np.asarray(products, dtype=np.float64)[:_MOST, :_MOST]
    if products.shape[0] != products.shape[1] or len(S) < 3 or not (usable(S).all() and np.allclose(S, S.T)):
        return
    candidates = [S]
    if not S.diagonal().any() and S.min() >= 0:
        centred = [square - square.mean(axis=0) for square in (S, S**2)]
        candidates = [-(one - one.mean(axis=1, keepdims=True)) / 2 for one in centred]
    for inner in candidates:
        values, axes = np.linalg.eigh(inner)
        if values[-1] > 0 and values[0] > -1e-9 * values[-1]:
            yield axes * np.sqrt(np.maximum(values, 0.0))


def _distances(A: Matrix, B: Matrix | None = None) -> Matrix:
    """Return all distances, of differences of coordinates: those of near points are exact, too."""
    B = A if B is None else B
    return np.asarray(np.sqrt(sum(np.square(a[:, None] - b[None, :]) for a, b in zip(A.T, B.T, strict=True))))


def _sorted(D: Matrix) -> tuple[Matrix, Array, Matrix]:
    """Return distances in units of the largest, each row's order, and all rows sorted, one after the other."""
    D = D / max(float(D.max()), 1e-300)
    order = np.argsort(D, axis=1)
    return D, order, (np.take_along_axis(D, order, axis=1) + 2 * np.arange(len(D))[:, None]).ravel()


def _matched(V: Matrix, table: tuple[Matrix, Array, Matrix]) -> tuple[Array, float]:
    """Return the rows that most vectors are, by the ratios of their distances, and the largest relative difference."""
    D, order, line = table
    n = len(D)
    here = np.arange(n)[:, None]
    for triple in some_triples(np.arange(len(V))):
        a, b, c = V[triple]
        ab, ac, bc = (float(np.linalg.norm(one - two)) for one, two in ((a, b), (a, c), (b, c)))
        if min(ab, ac, bc) <= 1e-9 * max(ab, ac, bc):
            continue
        wanted = np.minimum(D * (ac / ab), 1.5)
        place = np.searchsorted(line, (wanted + 2 * here).ravel()).reshape(n, n) - n * here
        off, third = np.full((n, n), np.inf), np.zeros((n, n), dtype=int)
        for shift in (0, 1):
            one = order[here, np.clip(place - shift, 0, n - 1)]
            apart = np.abs(D[here, one] - wanted) + np.abs(D[here.T, one] - D * (bc / ab))
            off, third = np.where(apart < off, apart, off), np.where(apart < off, one, third)
        for i, j in np.argwhere((off < _EQUAL * D) & (D > 0) & (third != here))[:_MOST]:
            base = np.array([i, j, third[i, j]])
            seen = _distances(V, V[triple]) * (D[i, j] / ab)
            apart = np.abs(seen[:, None, :] - D[:, base][None]).max(axis=2) / D[i, j]
            which, near = apart.argmin(axis=1), apart.min(axis=1)
            same = near < _EQUAL
            if same.sum() >= 3:
                return np.unique(which[same]), float(max(near[same].max(), 1e-13))
    return np.empty(0, dtype=int), 1.0


def _bits(D: Matrix, apart: float) -> float:
    """Return the information in a distance, in bits, where distances are equal up to `apart`."""
    squares = np.unique(np.square(D[D > 0]))
    if len(squares) < 2:
        return 0.0
    fineness = max(step(squares), float(np.ptp(squares)) * apart)
    return float(np.log2(np.ptp(squares) / fineness + 1))


def _beyond_chance(k: int, bits: float, n: int, m: int, groups: int) -> bool:
    """Return whether the number of equal distances of k vectors is more than the number of hypotheses explains."""
    if k < 3:
        return False
    equal = min(3 * (k - 2), k * m - m * (m + 1) // 2 if k > m else k * (k - 1) // 2) - 1
    return bool(equal * bits - k * np.log2(n) > np.log2(3 * groups / LEVEL))
