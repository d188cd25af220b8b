"""The forms in which messages may hold rows: scaled, sorted, quantised, in low bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fedspan.audit.parts.row_chances import EQUAL, Space, cell_bits

Array = NDArray[Any]
Matrix = NDArray[np.float64]


def row_views(rows: Matrix, sites: Array | None) -> dict[str, Matrix]:
    """Return rows in the forms in which they are commonly sent, also with each site's own means and ranges."""

    def of(part: Matrix) -> dict[str, Matrix]:
        def over(spread: Matrix) -> Matrix:
            return np.where(spread > 0, spread, 1.0)

        centred = part - part.mean(axis=0)
        return {
            "centred": centred,
            "standardised": centred / over(part.std(axis=0)),
            "scaled to the range": (part - part.min(axis=0)) / over(np.ptp(part, axis=0)),
            "scaled to the largest": part / over(np.abs(part).max(axis=0)),
        }

    views = {"": rows, **of(rows)}
    if sites is not None and len(np.unique(sites)) > 1:
        for name in views.copy():
            views[f"{name} at its site"] = np.empty_like(rows)
        del views[" at its site"]
        for site in np.unique(sites):
            mine = sites == site
            for name, view in of(rows[mine]).items():
                views[f"{name} at its site"][mine] = view
    return views


#: The views in which rows are quantised, and about the number of residues that are compared with them.
SCALED = tuple(f"scaled to the {to}{at}" for to in ("range", "largest") for at in ("", " at its site"))
QUANTISED = ("", "standardised", "standardised at its site", *SCALED)
KINDS = 100
#: Numbers of low bits that are searched for quantised cells in tables with more cells than `SMALL`.
WIDTHS, SMALL = (8, 10, 12, 14, 16, 20, 24, 32), 200_000


def plain_space(name: str, view: Matrix, bits: Matrix) -> Space:
    """Return the space of rows as they are in a view, in units of each column's spread."""
    spread = view.std(axis=0)
    scale = np.where(spread > 0, spread, max(float(np.abs(view).max()), 1e-300))
    return Space(name, view / scale, bits, lambda V: V / scale)


def direction_space(view: Matrix, bits: Matrix, name: str, centred: int) -> Space:
    """Return the space of directions: vectors that differ by a factor, or also by an offset, are the same."""

    def into(V: Matrix) -> Matrix:
        V = V - V.mean(axis=1, keepdims=True) if centred else V
        return np.asarray(V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300))

    return Space(name, into(view), bits, into, 1 + centred)


def sorted_space(rows: Matrix, bits: Matrix) -> Space:
    """Return the space of rows whose cells are sorted: the order of the columns adds no information."""
    scale = max(float(rows.std()), 1e-300)
    lost = float(gammaln(rows.shape[1] + 1) / np.log(2))
    return Space("columns in another order", np.sort(rows) / scale, bits - lost, lambda V: np.sort(V) / scale)


def evenly_chosen(V: Matrix, most: int) -> tuple[Matrix, Array]:
    """Return at most `most` of the vectors, evenly spaced, and their places."""
    chosen = np.linspace(0, len(V) - 1, min(len(V), most)).astype(int)
    return V[chosen], chosen


def low_parts(V: Matrix) -> Iterator[tuple[str, Array, Matrix]]:
    """Yield what is left of vectors without their leading bits or decimals: a name, which vectors, and the residues."""
    for width, ours, low in low_integers(V):
        if len(ours):
            yield f"{width} low bits", ours, low.astype(np.float64)
    for name, base, powers in (("bits", 2.0, range(-40, 25, 2)), ("decimals", 10.0, range(-12, 4))):
        for power in powers:
            unit = base**power
            R = V - np.rint(V / unit) * unit
            noise = 4 * np.finfo(float).eps * np.abs(V).max(axis=1)
            ours = np.flatnonzero((np.ptp(R, axis=1) > 1e3 * noise) & (np.abs(R - V).max(axis=1) > 0))
            if len(ours):
                yield f"what is left below {base:g}^{power} ({name})", ours, R[ours]


def low_integers(V: Matrix) -> Iterator[tuple[int, Array, NDArray[np.int64]]]:
    """Yield the lowest bits of the mantissas: their number, which vectors have any, and these bits as integers."""
    single = (V.astype(np.float32) == V).all(axis=1)  # sent in single precision, whose last bits lie higher
    whole = (np.rint(V) == V).all(axis=1) & (np.abs(V).max(axis=1) < 2.0**52)
    whole_bits = np.where(whole[:, None], V, 0.0).astype(np.int64)
    double_bits = np.ascontiguousarray(V).view(np.int64)
    single_bits = np.ascontiguousarray(V.astype(np.float32)).view(np.int32).astype(np.int64)
    bits = np.where(whole[:, None], whole_bits, np.where(single[:, None], single_bits, double_bits))
    for width in range(5, 33):
        low = bits & ((1 << width) - 1)
        ours = np.flatnonzero((np.ptp(low, axis=1) > 7) & (low != bits).any(axis=1))
        yield width, ours, low[ours]


def quantised_rows(views: Mapping[str, Matrix], width: int) -> Iterator[NDArray[np.int64]]:
    """Yield rows as integers of a few bits: fixed point, parts of the range, or their leading bits as floats."""
    mask, most = (1 << width) - 1, 2.0**52
    for name, rows in views.items():
        powers = [2.0**power for power in range(-8, width + 9)] + [10.0**power for power in range(1, 7)]
        for factor in [mask, mask + 1, mask // 2, mask // 2 + 1] if name in SCALED else powers if not name else []:
            scaled = rows * factor
            if np.abs(scaled).max() < most:
                yield np.rint(scaled).astype(np.int64) & mask
                yield np.floor(scaled).astype(np.int64) & mask
    rows = np.ascontiguousarray(views[""])
    for kind, total in (("f2", 16), ("f4", 32)):
        if width <= total:
            whole = rows.astype(f"<{kind}").view(f"<u{kind[1]}").astype(np.int64)
            yield whole >> (total - width)


def equal_integers(low: NDArray[np.int64], quantised: NDArray[np.int64], width: int) -> tuple[Array, Matrix]:
    """Return the row that each vector of integers equals, and the chance of that: 1 where it equals none."""
    factors = np.random.default_rng(2).integers(1, 2**62, low.shape[1], dtype=np.int64) | 1
    marks, first = np.unique((quantised * factors).sum(axis=1), return_index=True)
    place = np.minimum(np.searchsorted(marks, (low * factors).sum(axis=1)), len(marks) - 1)
    which = first[place]
    same = (low == quantised[which]).all(axis=1)
    chances = np.ones(len(low))
    if same.any():
        bits = np.minimum(cell_bits(quantised.astype(np.float64)), width * low.shape[1])
        chances[same] = np.minimum(1.0, len(quantised) * 2.0 ** -bits[which[same]])
    return which, chances


def some_triples(group: Array) -> list[Array]:
    """Return a few triples of a key's vectors, from its beginning, over all of it, and from its end."""
    spread = np.linspace(0, len(group) - 1, 3).astype(int)
    return [group[list(part)] for part in dict.fromkeys((tuple(range(3)), tuple(spread), tuple(range(-3, 0))))]


def affine_match(triple: Matrix, rows: Matrix) -> tuple[int, int] | None:
    """Return rows that the first two of three vectors are, up to a factor and an offset of each column; or None.

    With both given, the third vector follows in each column. All pairs are tried in one column, and those that give a
    row there are tried in the others.
    """
    a, b, c = triple
    if (np.abs(b - a) <= EQUAL * np.abs(triple).max(axis=0)).any():
        return None
    t = (c - a) / (b - a)
    if (np.abs(t) < 1e-6).any() or (np.abs(t - 1) < 1e-6).any() or np.ptp(t) < 1e-6:
        return None  # the vectors are on a line, and so in all columns alike
    scale = rows.std(axis=0)
    values, order = np.sort(rows[:, 0]), np.argsort(rows[:, 0], kind="stable")
    for i in range(len(rows)):
        aim = rows[i, 0] + t[0] * (rows[:, 0] - rows[i, 0])
        place = np.clip(np.searchsorted(values, aim), 1, len(values) - 1)
        place -= aim - values[place - 1] < values[place] - aim
        likely = np.flatnonzero(
            (np.abs(values[place] - aim) < 1e-7 * scale[0] * (1 + abs(t[0]))) & (rows[:, 0] != rows[i, 0])
        )
        for second in likely:
            third = rows[order[place[second]]]
            apart = np.abs(rows[i] + t * (rows[second] - rows[i]) - third) / (scale * (1 + np.abs(t)))
            if (apart < 1e-6).all():
                return i, int(second)
    return None
