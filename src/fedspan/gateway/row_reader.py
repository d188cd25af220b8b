"""Rows from JSON lines or CSV: whole lines as they come, each with the place in the input where it ends."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

#: Bytes that are read at once, and of the longest line.
_CHUNK, _LONGEST = 2**16, 2**20
#: Seconds between two checks of a file that is followed.
_PAUSE = 0.2


class RowError(ValueError):
    """A line that is no row of the model's columns."""


def lines(descriptor: int, *, follow: bool = False) -> Iterator[list[bytes]]:
    """Yield the whole lines that came since, without their ends; an empty list where a followed file has no more.

    What is left of a line when the input ends is a line, unless the input is followed.
    """
    rest = b""
    while True:
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            if not follow:
                break
            yield []
            time.sleep(_PAUSE)
            continue
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            raise RowError(f"a line has more than {_LONGEST} bytes: the input is neither JSON lines nor CSV")
        if whole:
            yield whole
    if rest:
        yield [rest]


class RowReader:
    """Turns lines into rows (d,) of the model's columns. The first line of CSV names its columns.

    Rows are numbers, or with `raw` lists of cells, for a model that encodes them; cells that a row lacks are missing.
    """

    def __init__(self, columns: list[str], form: str, header: list[str] | None = None, raw: bool = False) -> None:
        self.columns, self.form, self.header, self.raw = columns, form, header, raw
        self._place = None if header is None else self._places(header)

    def row(self, line: bytes) -> Any:
        """Return one row, or ``None`` for an empty line and for the header of CSV."""
        if not line.strip():
            return None
        if self.form == "jsonl":
            return self._of_json(line)
        cells = next(csv.reader([line.decode("utf-8", "replace")]))
        if self._place is None:
            self.header = [cell.strip() for cell in cells]
            self._place = self._places(self.header)
            return None
        if self.raw:
            return [cells[j] if j < len(cells) else None for j in self._place]
        try:
            return np.array([cells[j] for j in self._place], dtype=np.float64)
        except (IndexError, ValueError):
            raise RowError(f"it has {len(cells)} cells, and must have numbers in the model's columns") from None

    def _of_json(self, line: bytes) -> Any:
        try:
            found: Any = json.loads(line)
            if self.raw:
                return self._cells(found)
            values = [found[name] for name in self.columns] if isinstance(found, dict) else found
            row = np.array(values, dtype=np.float64)
        except KeyError as error:
            raise RowError(f"it has no value of {error.args[0]!r}") from None
        except (TypeError, ValueError, RecursionError):
            raise RowError("it is no JSON object with a number for each of the model's columns") from None
        if row.shape != (len(self.columns),):
            raise RowError(f"it must have {len(self.columns)} numbers")
        return row

    def _cells(self, found: Any) -> list[Any]:
        cells = [found.get(name) for name in self.columns] if isinstance(found, dict) else found
        if not isinstance(cells, list) or len(cells) != len(self.columns):
            raise RowError(f"it is no JSON object, nor a list of {len(self.columns)} cells")
        if all(cell is None for cell in cells) or any(isinstance(cell, dict | list) for cell in cells):
            raise RowError("it has no cell of the model's columns, or cells that are no numbers or texts")
        return cells

    def _places(self, header: list[str]) -> list[int]:
        missing = [name for name in self.columns if name not in header]
        if missing:
            raise RowError(f"the first line names no column {missing[0]!r}: it must name all of the model's columns")
        return [header.index(name) for name in self.columns]
