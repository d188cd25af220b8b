"""The lines of a CSV file, before anything is made of them: every line has one field for each name of the header.

A line with a field too many or too few would put values under the names of other columns, where what the owner drops,
filters and checks is no longer what it is called. Such a file is refused.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
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
    with opened(file) as lines:
        reader = csv.reader(lines)
        names = next((line for line in reader if not _blank(line)), None)
        if names is None:
            raise InputError(f"{file} is empty: its first line must name the columns")
        doubled = next((name for name in names if name and names.count(name) > 1), None)
        if doubled is not None:
            raise InputError(f"{file} has two columns named {doubled!r}")
        nameless = [place for place, name in enumerate(names) if not name and place]
        rows = 0
        for line in reader:
            if _blank(line):
                continue
            if len(line) != len(names):
                raise InputError(
                    f"{file}: line {reader.line_num} has {len(line)} fields, and the header names {len(names)} columns"
                )
            for place in nameless:
                if line[place]:
                    raise InputError(
                        f"{file}: line {reader.line_num} has something in column {place + 1}, which has no name in the "
                        "header"
                    )
            rows += 1
    return CsvShape(tuple(names), rows)


def opened(file: Path) -> TextIO:
    """Open a file, packed or not, as text."""
    if file.name.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def _blank(line: list[str]) -> bool:
    return not line or (len(line) == 1 and not line[0].strip(" \t"))
