"""Rows from lines of JSON or CSV."""

from __future__ import annotations

import csv
import json
import math
from typing import Any

import numpy as np

from fedspan.gateway.cell_text import number
from fedspan.gateway.row_source import LONGEST


class RowError(ValueError):
    """A line that is not a row of the model's columns."""


class RowReader:
    """Turns lines into rows (d,) of the model's columns. The first line of CSV names its columns.

    A next file of CSV may have no such line: its columns are then those of the file before.

    Rows are numbers, or with `raw` lists of cells, for a model that encodes them; cells that a row lacks are missing.
    """

    def __init__(self, columns: list[str], form: str, header: list[str] | None = None, raw: bool = False) -> None:
        self.columns, self.form, self.header, self.raw = columns, form, header, raw
        self._place = None if header is None else self._places(header)
        self._first = header is None

    def begin_file(self) -> None:
        """Expect a first line again: CSV may name its columns in it."""
        self._first = True

    def row(self, line: bytes | None) -> Any:
        """Return one row, or ``None`` for an empty line and for the header of CSV."""
        if line is None:
            raise RowError(f"it has more than {LONGEST} bytes")
        if not line.strip():
            return None
        if self.form == "jsonl":
            return self._of_json(line)
        try:
            cells = next(csv.reader([line.decode("utf-8-sig", "replace")]))
        except csv.Error as error:
            raise RowError(f"it is not a line of CSV: {error}") from None
        first, self._first = self._first, False
        if self._place is None or (first and not self._goes_on(cells)):
            names, self.header, self._place = [cell.strip() for cell in cells], None, None
            self._place = self._places(names)
            self.header = names
            return None
        if len(cells) != len(self.header or []) or not any(cell.strip() for cell in cells):
            raise RowError(f"it has {len(cells)} cells, and must have {len(self.header or [])} as the first line has")
        found = [cells[j] for j in self._place]
        try:
            return found if self.raw else np.array(found, dtype=np.float64)
        except ValueError:
            raise RowError("it must have numbers in the model's columns") from None

    def _of_json(self, line: bytes) -> Any:
        try:
            found: Any = json.loads(line)
            if self.raw:
                return self._cells(found)
            values = [found[name] for name in self.columns] if isinstance(found, dict) else found
            row = np.array(values, dtype=np.float64)
        except KeyError as error:
            raise RowError(f"it has no value of {error.args[0]!r}") from None
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise RowError("it is no JSON object with a number for each of the model's columns") from None
        if row.shape != (len(self.columns),):
            raise RowError(f"it must have {len(self.columns)} numbers")
        return row

    def _cells(self, found: Any) -> list[Any]:
        cells = [found.get(name) for name in self.columns] if isinstance(found, dict) else found
        if not isinstance(cells, list) or len(cells) != len(self.columns):
            raise RowError(f"it is no JSON object, nor a list of {len(self.columns)} cells")
        if all(cell is None for cell in cells) or any(isinstance(cell, dict | list) for cell in cells):
            raise RowError("it has no cell of the model's columns, or cells that are neither numbers nor texts")
        return cells

    def _goes_on(self, cells: list[str]) -> bool:
        """Return whether a first line is a row, of the columns of the file before: it has a number, and no name."""
        names = any(cell.strip() in self.columns for cell in cells)
        return not names and any(not math.isnan(number(cell)) for cell in cells)

    def _places(self, header: list[str]) -> list[int]:
        missing = [name for name in self.columns if name not in header]
        if missing:
            raise RowError(f"the first line names no column {missing[0]!r}: it must name all of the model's columns")
        return [header.index(name) for name in self.columns]
