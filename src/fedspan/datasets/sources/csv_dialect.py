"""How a CSV file is written: its separator, decimal point, encoding, and words for missing cells."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedspan.datasets.toml_file import Section
from fedspan.errors import InputError

#: The keys of study.toml and site.toml that describe CSV files.
DIALECT_KEYS = ("separator", "decimal", "encoding", "missing")
_SEPARATORS = (",", ";", "\t", "|")
_LOOK = 2**16  # bytes that are looked at


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Parameters
    ----------
    separator : str, optional
        One character between fields. Default: a comma, or a tab in ``.tsv`` files.
    decimal : str, default="."
        The decimal point of numbers, ``"."`` or ``","``.
    encoding : str, default="utf-8"
        Such as ``"cp1252"`` for many spreadsheets. A mark at the beginning of UTF-8 files is skipped.
    missing : texts
        Words that mean a missing cell in every column. Empty fields always do, and in columns of numbers the usual
        words (``NA``, ``null``, ``nan``, ...) as well; in columns of text these are text.
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise InputError(f"separator={self.separator!r} must be one character, such as ';'")
        if self.decimal not in (".", ","):
            raise InputError(f"decimal={self.decimal!r} must be '.' or ','")
        if self.separator == self.decimal:
            raise InputError(f"separator and decimal are both {self.decimal!r}: they must differ")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InputError(f"encoding={self.encoding!r} is not known: use 'utf-8', 'cp1252' or 'latin-1'") from None


def stated(section: Section, default: Dialect | None = None) -> Dialect:
    """Return the dialect that a ``[data]`` table states; keys that it does not have are as in `default`."""
    given: dict[str, Any] = {key: section.value(key, str) for key in DIALECT_KEYS[:-1] if key in section}
    missing = section.names("missing", 'texts that mean a missing cell, such as ["?"]', None)
    given |= {} if missing is None else {"missing": missing}
    with section.naming():
        return replace(default or Dialect(), **given)


def detected(file: Path) -> Dialect:
    r"""Return the dialect that the beginning of a CSV file is written in.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("age;dose\n20;1,5\n30;2,25\n")
    >>> detected(path)
    Dialect(separator=';', decimal=',', encoding='utf-8', missing=())
    """
    with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as raw:
        data = raw.read(_LOOK)
    encoding = _encoding_of(data)
    lines = data.decode(encoding, errors="replace").removeprefix("\ufeff").splitlines()
    lines = [line for line in (lines[:-1] if len(data) == _LOOK else lines) if line.strip()][:200]
    separator = max(_SEPARATORS, key=lambda one: _fits(lines, one))
    separator = separator if _fits(lines, separator) > (0, 0.0) else ","
    cells = [cell for row in csv.reader(lines[1:], delimiter=separator) for cell in row]
    commas = sum(re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell) is not None for cell in cells)
    points = sum(re.fullmatch(r"\s*[+-]?\d+\.\d+\s*", cell) is not None for cell in cells)
    found = Dialect(separator, ".", encoding)
    return replace(found, decimal=",") if separator != "," and commas > points else found


def _encoding_of(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _fits(lines: list[str], separator: str) -> tuple[int, float]:
    """Return how well a separator fits: whether lines agree on the number of fields, and how many these are."""
    counts = Counter(len(row) for row in csv.reader(lines, delimiter=separator) if row)
    if not counts:
        return (0, 0.0)
    fields, lines_with = counts.most_common(1)[0]
    return (0, 0.0) if fields < 2 else (int(10 * lines_with / sum(counts.values())), fields)
