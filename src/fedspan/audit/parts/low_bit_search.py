"""The search for rows in the low bits or last decimals of numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.row_chances import column_bits
from fedspan.audit.parts.row_forms import QUANTISED, SCALED, direction_space, evenly_chosen
from fedspan.audit.parts.search_task import VectorTask

Integers = NDArray[np.int64]

#: About the number of residues that are compared with rows.
_KINDS = 100
#: Numbers of low bits that are searched for quantised cells in tables with more cells than `_SMALL`.
_WIDTHS, _SMALL = (8, 10, 12, 14, 16, 20, 24, 32), 200_000
#: The number of smallest, and of largest, values of a column that may bound an unknown part of the rows.
_BOUNDS = 20


def search_low_bits(task: VectorTask) -> None:
    """Look for rows on a line with what is left of vectors, and for rows that are quantised there."""
    m, n = task.rows.shape[1], len(task.keep)
    names = [name for name in QUANTISED if name in task.views]
    lines = [direction_space(task.views[name], task.bits, name, 1) for name in names]
    most = max(20, int(5 * task.findings.WORK / (n * m * len(lines) * _KINDS)))
    task.findings.limit("low bits", len(task.vectors), most, "vectors")
    V, chosen = evenly_chosen(task.vectors, most)
    kinds = list(_low_parts(V)) if m > 3 else []
    for form, ours, residues in kinds:
        for line in lines:
            which, chances = line.hits(residues)
            task.add_sure("low bits", form, chosen[ours], which, chances, len(kinds) * (len(lines) + 1))
    # Quantised cells may wrap, so that they are on no line with the rows: compare them as integers.
    with np.errstate(over="ignore", invalid="ignore"):
        for width, ours, low in _low_integers(V):
            if not len(ours) or (width not in _WIDTHS and task.rows.size > _SMALL):
                continue
            form = f"{width} low bits"
            for quantised in _quantised_rows({name: task.views[name] for name in names}, width):
                which, chances = _equal_integers(low, quantised, width)
                task.add_sure("low bits", form, chosen[ours], which, chances, 30 * 60)
            if task.sites is None or task.table.guessed:
                which, chances = _parts_of_ranges(low, task.unique, task.bits, width)
                task.add_sure("low bits", form, chosen[ours], which, chances, 30)


def _low_parts(V: Matrix) -> Iterator[tuple[str, Array, Matrix]]:
    """Yield what is left of vectors without their leading bits or decimals: a name, which vectors, and the residues."""
    for width, ours, low in _low_integers(V):
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


def _low_integers(V: Matrix) -> Iterator[tuple[int, Array, Integers]]:
    """Yield the lowest bits of the mantissas: their number, which vectors have any, and these bits as integers."""
    with np.errstate(over="ignore"):
        singles = V.astype(np.float32)
    single = (singles == V).all(axis=1)  # sent in single precision, whose last bits lie higher
    whole = (np.rint(V) == V).all(axis=1) & (np.abs(V).max(axis=1) < 2.0**52)
    whole_bits = np.where(whole[:, None], V, 0.0).astype(np.int64)
    double_bits = np.ascontiguousarray(V).view(np.int64)
    single_bits = np.ascontiguousarray(singles).view(np.int32).astype(np.int64)
    bits = np.where(whole[:, None], whole_bits, np.where(single[:, None], single_bits, double_bits))
    for width in range(5, 33):
        low = bits & ((1 << width) - 1)
        ours = np.flatnonzero((np.ptp(low, axis=1) > 7) & (low != bits).any(axis=1))
        yield width, ours, low[ours]


def _quantised_rows(views: dict[str, Matrix], width: int) -> Iterator[Integers]:
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


def _equal_integers(low: Integers, quantised: Integers, width: int) -> tuple[Array, Matrix]:
    """Return the row that each vector of integers equals, and the chance of that: 1 where it equals none."""
    factors = np.random.default_rng(2).integers(1, 2**62, low.shape[1], dtype=np.int64) | 1
    marks, first = np.unique((quantised * factors).sum(axis=1), return_index=True)
    place = np.minimum(np.searchsorted(marks, (low * factors).sum(axis=1)), len(marks) - 1)
    which = first[place]
    same = (low == quantised[which]).all(axis=1)
    chances = np.ones(len(low))
    if same.any():
        bits = np.minimum(column_bits(quantised.astype(np.float64)).sum(axis=1), width * low.shape[1])
        chances[same] = np.minimum(1.0, len(quantised) * 2.0 ** -bits[which[same]])
    return which, chances


def _parts_of_ranges(low: Integers, rows: Matrix, bits: Matrix, width: int) -> tuple[Array, Matrix]:
    """Return the row that each vector may be as parts of the ranges of an unknown part of the rows, and the chance.

    A column's range lies between one of its smallest and one of its largest values. A row counts where each of its
    cells has a range that gives the integer sent.
    """
    most = (1 << width) - 1
    fits = np.ones((len(low), len(rows)), dtype=np.bool_)
    chance = np.ones(len(low))
    for j, column in enumerate(rows.T):
        order, values = np.argsort(column, kind="stable"), np.unique(column)
        low_ends, high_ends = (ends.ravel() for ends in np.meshgrid(values[:_BOUNDS], values[-_BOUNDS:], indexing="ij"))
        ends = high_ends > low_ends
        low_ends, high_ends = low_ends[ends], high_ends[ends]
        step = (high_ends - low_ends) / most
        for i in np.flatnonzero(fits.any(axis=1)):
            centre = low_ends + low[i, j] * step
            first = np.searchsorted(column[order], centre - 0.501 * step)
            last = np.searchsorted(column[order], centre + 1.001 * step)  # rounded, or cut off
            edges = np.bincount(first, minlength=len(rows) + 1) - np.bincount(last, minlength=len(rows) + 1)
            ours = np.zeros(len(rows), dtype=np.bool_)
            ours[order] = np.cumsum(edges)[:-1] > 0
            chance[i] *= min(1.0, 1.5 * len(step) * 2.0**-width)
            fits[i] &= ours
    which = fits.argmax(axis=1)
    found = len(rows) * np.maximum(chance, 2.0 ** -bits[which])
    return which, np.where(fits.any(axis=1), np.minimum(1.0, found), 1.0)
