"""What a mixed table becomes: numbers, logarithms of numbers, and one column for each name of a text column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import lens
from fedspan.protocols.category_union import Names, packed, unpacked
from fedspan.protocols.cells import columns, names, numbers, signed_log

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Vector = NDArray[np.float64]


@lens(frames=True)
def encode(
    rows: Any, text: Mask, log: Mask, missing: Mask, other: bool, names: str, sizes: NDArray[np.int64], fill: Vector
) -> Array:
    """Return the encoded rows (n, D) of a data frame or an array (n, d).

    In the order of the columns: of a column of numbers its values, or with `log` their signed logarithms; of a `text`
    column one column of 0 and 1 for each of its names, and with `other` one for all further names. Where `missing`
    says so, one more column tells the missing cells. They have the values of `fill` (D,) where the column is of
    numbers, or is of text and has no such column.
    """
    encoded = np.zeros((len(rows), len(fill)))
    known = iter(unpacked(names, sizes))
    at = 0
    for column, is_text, is_logged, tells_missing in zip(columns(rows), text, log, missing, strict=True):
        if is_text:
            known_here = next(known)
            width = len(known_here) + other
            absent = _put_names(encoded[:, at : at + width], column, known_here)
        else:
            width = 1
            values = numbers(column)
            absent = np.isnan(values)
            encoded[:, at] = signed_log(values) if is_logged else values
        if tells_missing:
            encoded[absent, at + width] = 1.0
        if not (is_text and tells_missing) and absent.any():
            encoded[absent, at : at + width] = fill[at : at + width]
        at += width + tells_missing
    return encoded.astype(np.float32) if _is_single(rows) else encoded


@dataclass(frozen=True)
class Encoding:
    """How a table of d columns is encoded: which are text, logarithms, or tell missing cells, and the known names."""

    text: Mask
    log: Mask
    missing: Mask
    names: Names
    other: bool

    def parameters(self, fill: Vector) -> dict[str, Any]:
        """Return the parameters of `encode`, ready to travel."""
        of_columns = {"text": self.text, "log": self.log, "missing": self.missing}
        return {**of_columns, "other": self.other, **packed(self.names), "fill": fill}

    def labels(self, columns: Sequence[str]) -> list[str]:
        """Return a label for each of the encoded columns (D,), all different."""
        return list(_made_unique(label for _, label in self._outputs(columns)))

    def stands_for(self, part: str) -> Mask:
        """Return which of the encoded columns (D,) are a "value", a "name" or tell what is "missing"."""
        return np.array([found == part for found, _ in self._outputs([""] * len(self.text))], dtype=bool)

    def _outputs(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield what each of the encoded columns is, and its label."""
        known = iter(self.names)
        for column, is_text, tells_missing in zip(columns, self.text, self.missing, strict=True):
            if is_text:
                yield from (("name", f"{column}_{text or '(missing)'}") for text in next(known))
                if self.other:
                    yield "name", f"{column}_(other)"
            else:
                yield "value", column
            if tells_missing:
                yield "missing", f"{column}_(missing)"


def _put_names(block: Vector, column: Any, known: Sequence[str]) -> Mask:
    """Put 1 where a cell's name stands in `block` (n, names or names + 1), and return which cells are missing."""
    texts, codes = names(column)
    place = {text: i for i, text in enumerate(known)}
    is_missing = np.array([not text and text not in place for text in texts], dtype=bool)[codes]
    where = np.array([place.get(text, len(known)) for text in texts], dtype=np.intp)[codes]
    told = np.flatnonzero(~is_missing & (where < block.shape[1]))
    block[told, where[told]] = 1.0
    return is_missing


def _is_single(rows: Any) -> bool:
    dtypes = list(rows.dtypes) if hasattr(rows, "iloc") else [rows.dtype]
    return all(dtype == np.float32 for dtype in dtypes)


def _made_unique(labels: Iterable[str]) -> Iterator[str]:
    """Yield the labels, with underscores added to those that another one has already."""
    seen: set[str] = set()
    for label in labels:
        unique = label
        while unique in seen:
            unique += "_"
        seen.add(unique)
        yield unique
