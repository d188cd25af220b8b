"""The lines of a CSV file, before anything is made of them: every line has one field for each name of the header.

A line with a field too many or too few would put values under the names of other columns, where what the owner drops,
filters and checks is no longer what it is called. Such a file is refused.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TextIO

from fedspan.errors import InputError


@dataclass(frozen=True)
class CsvShape:
    """What all lines of a file have in common.

    `names` are those of the header; ``""`` stands for a column that has none, and is never read. `rows` counts the
    lines below the header.
    """

    names: tuple[str, ...]
    rows: int


def csv_shape(file: Path) -> CsvShape:
    """Read all lines of a file, and refuse one that has not as many fields as the header.

    A column without a name must be empty from top to bottom, as one is where each line ends with a comma; the first
    column may hold what it likes, since tables are often written with the numbers of their rows there.
    """
    with opened(file) as text:
        lines = _lines(text)
        _, names = next(lines, (0, None))
        if names is None:
            raise InputError(f"{file} is empty: its first line must name the columns")
        if len(names) == 1 and (mark := next((mark for mark in ";\t|" if mark in names[0]), None)):
            raise InputError(
                f"{file}: the first line names one column with {mark!r} in it: fields must be parted by commas"
            )
        doubled = next((name for name in names if name and names.count(name) > 1), None)
        if doubled is not None:
            raise InputError(f"{file} has two columns named {doubled!r}")
        nameless = [place for place, name in enumerate(names) if not name and place]
        width, rows = len(names), 0
        for number, fields in lines:
            if len(fields) != width:
                raise InputError(
                    f"{file}: line {number} has {len(fields)} fields, and the header names {width} columns"
                )
            for place in nameless:
                if fields[place]:
                    raise InputError(
                        f"{file}: line {number} has something in column {place + 1}, which has no name in the header"
                    )
            rows += 1
    return CsvShape(tuple(names), rows)


def opened(file: Path) -> TextIO:
    """Open a file, packed or not, as text."""
    if file.name.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def _lines(text: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each line that is not blank, with its number; a cell in quotes may go over several lines."""
    number = 0
    for line in text:
        number += 1
        if '"' in line:
            reader = csv.reader(chain([line], text))
            fields = next(reader)
            number += reader.line_num - 1
            yield number, fields
        elif line.strip(" \t\r\n"):
            yield number, line.rstrip("\r\n").split(",")
