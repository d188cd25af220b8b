"""Encode raw cells as the encoder of an exported pipeline does: numpy, and the module beside this one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.gateway.cell_text import LARGEST, name, number

Array = NDArray[Any]

#: What arrays of an encoder are called in an exported file.
PREFIX = "encoder_"
#: Distinct cells whose names a gateway remembers.
_REMEMBERED = 10_000


class CellEncoder:
    """An exported encoder: ``encode(rows)`` of raw cells, text, numbers, ``None`` and truth values, is (n, D)."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        own = {key.removeprefix(PREFIX): value for key, value in arrays.items() if key.startswith(PREFIX)}
        self.columns = [str(column) for column in own["columns"]]
        self._text, self._log, self._missing = (own[key].astype(bool) for key in ("text", "log", "missing"))
        self._other, self._unexpected = bool(own["other"]), float(own["unexpected"])
        self._fill, self._scale = own["fill"], own.get("scale")
        names = iter(str(text) for text in own["names"])
        self._names = [{next(names): place for place in range(int(size))} for size in own["sizes"]]
        self._known: dict[Any, str] = {}

    def encode(self, rows: Sequence[Sequence[Any]]) -> Array:
        """Return the encoded rows (n, D), as `fedspan.tables.parts.encoding.encode` does."""
        found = np.zeros((len(rows), len(self._fill)))
        known, at = iter(self._names), 0
        for j, is_text in enumerate(self._text):
            cells = [row[j] for row in rows]
            if is_text:
                places = next(known)
                width = len(places) + self._other
                gaps = self._put_names(found[:, at : at + width], cells, places)
            else:
                width = 1
                values = np.array([_as_number(cell) for cell in cells])
                gaps = np.isnan(values)
                found[:, at] = np.copysign(np.log1p(np.abs(values)), values) if self._log[j] else values
            if self._missing[j]:
                found[gaps, at + width] = 1.0
            if not is_text or not self._missing[j]:
                found[gaps, at : at + width] = self._fill[at : at + width]
            if self._unexpected and not self._missing[j]:
                found[gaps, -1] += self._unexpected
            at += width + bool(self._missing[j])
        return found if self._scale is None else (found - self._fill) / self._scale

    def _put_names(self, block: Array, cells: list[Any], places: dict[str, int]) -> Array:
        """Put 1 at the place of each cell's name, and return which cells are missing."""
        names = [self._name(cell) for cell in cells]
        where = np.array([places.get(text, -1 if not text else len(places)) for text in names], dtype=np.intp)
        put = np.flatnonzero((where >= 0) & (where < block.shape[1]))
        block[put, where[put]] = 1.0
        return np.asarray(where < 0)

    def _name(self, cell: Any) -> str:
        text = "" if cell is None else str(cell)
        if text not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[text] = name(text)
        return self._known[text]


def _as_number(cell: Any) -> float:
    """Return a cell as a number, NaN where it is not a number or too large."""
    if isinstance(cell, str):
        value = number(cell)
    elif isinstance(cell, int | float):
        try:
            value = float(cell)
        except OverflowError:
            return math.nan
    else:
        return math.nan
    return value if abs(value) <= LARGEST else math.nan
