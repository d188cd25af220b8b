"""Encode a mixed table: numbers, logarithms of numbers, and one column for each name of a text column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import transform
from fedspan.federation.site.parameters import Flags, NotNegative, Vector
from fedspan.gateway.cell_text import LARGEST
from fedspan.tables.parts.category_union import Lines, Names, Naturals, packed, unpacked
from fedspan.tables.parts.cells import BLOCK_CELLS, column, names, read, runs, signed_log

#: The distance of a row with an unexpected missing cell, in units of the root mean square distance of rows from their
#: mean. By Chebyshev at most 1 / 25 of the rows are as far: thresholds up to their 0.96 quantile are below.
FAR = 5.0


@transform("tables.encode", frames=True, elementwise=True)
def encode(
    rows: Any,
    text: Flags,
    log: Flags,
    missing: Flags,
    unexpected: NotNegative,
    other: bool,
    names: Lines,
    sizes: Naturals,
    fill: Vector,
    scale: Vector | None,
) -> NDArray[Any]:
    """Return the encoded rows (n, D) of a data frame or an array (n, d).

    In the order of the columns: a column of numbers gives its values, or with `log` their signed logarithms. A `text`
    column gives a column of 0 and 1 for each of its names, and with `other` one for all further names. Where `missing`
    is true, one more column marks the missing cells. Missing cells have the values of `fill` (D,) in columns of
    numbers, and in text columns without such a mark. Unless `unexpected` is 0, the last column adds that number for
    each missing cell that neither a mark nor a name shows. With `scale` (D,) the result is the distance from `fill` in
    its units. float32 stays float32.
    """
    if rows.ndim != 2 or rows.shape[1] != len(text):
        raise InputError(f"the table has the shape {rows.shape}, and must have {len(text)} columns")
    encoding = Encoding(text, log, missing, unpacked(names, sizes), other, unexpected)
    dtypes = rows.dtypes if hasattr(rows, "iloc") else [rows.dtype]
    single = all(dtype == np.float32 for dtype in dtypes)
    encoded = np.empty((len(rows), len(fill)), dtype=np.float32 if single else np.float64)
    step = max(1, BLOCK_CELLS // max(1, len(fill)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        block = encoding.encoded(rows.iloc[part] if hasattr(rows, "iloc") else rows[part], fill)
        if scale is not None:
            block -= fill
            block /= scale
        encoded[part] = block
    return encoded


@dataclass(frozen=True)
class Encoding:
    """How to encode a table of d columns: which are text, logarithms, or have a mark of missing cells, and the names.

    `unexpected` is what a missing cell that no other column shows adds to the last column; 0: no such column.
    """

    text: Flags
    log: Flags
    missing: Flags
    names: Names
    other: bool
    unexpected: float = 0.0

    def encoded(self, rows: Any, fill: Vector) -> Vector:
        """Return the encoded rows (n, D), as `encode` does."""
        widths = np.ones(len(self.text), dtype=np.int64)  # without the marks of missing cells
        widths[self.text] = [len(known) + self.other for known in self.names]
        starts = np.cumsum(widths + self.missing) - widths - self.missing
        places = starts[~self.text]
        encoded = np.zeros((len(rows), len(fill)))

        values = read(rows, np.flatnonzero(~self.text)).values
        for start, stop, at in runs(places):
            encoded[:, at : at + stop - start] = values[:, start:stop]
        for start, stop, at in runs(starts[self.log]):
            stretch = slice(at, at + stop - start)
            encoded[:, stretch] = signed_log(encoded[:, stretch])
        absent = np.isnan(values)
        if absent.any():
            row, place = np.nonzero(absent)
            encoded[row, places[place]] = fill[places[place]]
            marked = self.missing[~self.text]
            encoded[:, places[marked] + 1] = absent[:, marked]
            if self.unexpected:
                encoded[:, -1] = self.unexpected * absent[:, ~marked].sum(axis=1)

        for j, known in zip(np.flatnonzero(self.text), self.names, strict=True):
            block = slice(starts[j], starts[j] + widths[j])
            missing = _put_names(encoded[:, block], column(rows, int(j)), known)
            if self.missing[j]:
                encoded[missing, starts[j] + widths[j]] = 1.0
            else:
                encoded[missing, block] = fill[block]
                if self.unexpected:
                    encoded[missing, -1] += self.unexpected
        return encoded

    def parameters(self, fill: Vector, scale: Vector | None = None) -> dict[str, Any]:
        """Return the parameters of `encode`, ready to travel."""
        own = {key: value for key, value in vars(self).items() if key != "names"}
        return {**own, **packed(self.names), "fill": fill, "scale": scale}

    def labels(self, columns: Sequence[str]) -> list[str]:
        """Return a label for each of the encoded columns (D,); one that repeats gets underscores."""
        found: dict[str, None] = {}
        for _, wanted in self._outputs(columns):
            label = wanted
            while label in found:
                label += "_"
            found[label] = None
        return list(found)

    def stands_for(self, part: str) -> Flags:
        """Return which encoded columns (D,) are a "value", a "name", or mark what is "missing" or "unexpected"."""
        return np.array([found == part for found, _ in self._outputs([""] * len(self.text))], dtype=bool)

    def _outputs(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield what each of the encoded columns stands for, and its label."""
        known = iter(self.names)
        for of, is_text, marks_missing in zip(columns, self.text, self.missing, strict=True):
            if is_text:
                yield from (("name", f"{of}_{text or '(missing)'}") for text in next(known))
                if self.other:
                    yield "name", f"{of}_(other)"
            else:
                yield "value", of
            if marks_missing:
                yield "missing", f"{of}_(missing)"
        if self.unexpected:
            yield "unexpected", "(unexpected missing)"


def far_out(variance: Vector) -> float:
    """Return what an unexpected missing cell adds to the last column, where the others have `variance` (D - 1,).

    Detectors may scale the others to unit variance, and not the last one, which is constant: it is far out then, too.
    No false report makes it infinite.
    """
    return float(FAR * np.sqrt(max(len(variance), np.minimum(variance, LARGEST**2).sum())))


def _put_names(block: Vector, cells: Any, known: Sequence[str]) -> Flags:
    """Put 1 at the place of each cell's name in `block` (n, names or names + 1), and return which cells are missing."""
    texts, codes = names(cells)
    place = {text: i for i, text in enumerate(known)}
    is_missing = np.array([not text and text not in place for text in texts], dtype=bool)[codes]
    where = np.array([place.get(text, len(known)) for text in texts], dtype=np.intp)[codes]
    placed = np.flatnonzero(~is_missing & (where < block.shape[1]))
    block[placed, where[placed]] = 1.0
    return is_missing
