"""How a CSV file is written: its separator, decimal point, thousands, encoding, and words for missing cells."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedspan.datasets.toml_file import Section
from fedspan.errors import InputError

#: The keys of study.toml and site.toml that describe CSV files.
DIALECT_KEYS = ("separator", "decimal", "thousands", "encoding", "missing")
_SEPARATORS = (",", ";", "\t", "|")
_THOUSANDS = (",", ".", "'", "\u2019", " ", "\u00a0", "\u202f")
#: What Excel takes from a first line, and other programs write there for it.
SEPARATOR_LINE = re.compile(r"\ufeff?\"?sep=(.)\"?\s*$", re.IGNORECASE)
_LOOK = 2**16  # bytes at the head of a file, which decide the dialect


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
    thousands : str, optional
        What separates groups of three digits, as the point in ``1.250,5``. Default: a point if `decimal` is a comma,
        otherwise nothing.
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise InputError(f"separator={self.separator!r} must be one character, such as ';'")
        if self.decimal not in (".", ","):
            raise InputError(f"decimal={self.decimal!r} must be '.' or ','")
        if self.separator == self.decimal:
            raise InputError(f"separator and decimal are both {self.decimal!r}: they must differ")
        if self.thousands is not None and self.thousands not in _THOUSANDS:
            raise InputError(f"thousands={self.thousands!r} must be ',', '.', an apostrophe or a space")
        if self.thousands == self.decimal:
            raise InputError(f"decimal and thousands are both {self.decimal!r}: they must differ")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InputError(f"encoding={self.encoding!r} is not known: use 'utf-8', 'cp1252' or 'latin-1'") from None

    @property
    def groups(self) -> str | None:
        """What separates groups of three digits: as stated, or a point beside decimal commas."""
        return self.thousands or ("." if self.decimal == "," else None)

    @property
    def grouped(self) -> str:
        """A regular expression for numbers of which at least one group of three digits is set apart."""
        mark, point = re.escape(self.groups or ""), re.escape(self.decimal)
        return rf"[+-]?[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{point}[0-9]+)?"

    def plain(self, text: str) -> str:
        """Return a number's text with a decimal point and without groups; other text as it is."""
        if self.groups and re.fullmatch(self.grouped, text.strip()):
            text = text.replace(self.groups, "")
        return text.replace(",", ".") if self.decimal == "," and "." not in text else text


def stated(section: Section, default: Dialect | None = None) -> Dialect:
    """Return the dialect that a ``[data]`` table states; keys that it does not have are as in `default`."""
    given: dict[str, Any] = {key: section.value(key, str) for key in DIALECT_KEYS[:-1] if key in section}
    missing = section.names("missing", 'texts that mean a missing cell, such as ["?"]', None)
    given |= {} if missing is None else {"missing": missing}
    with section.naming():
        return replace(default or Dialect(), **given)


def detected(file: Path, usual: str = "utf-8") -> Dialect:
    r"""Return the dialect that the beginning of a CSV file is written in.

    `usual` is the encoding where the file shows none, since its letters are those of all encodings.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = path.write_text("age;dose\n20;1,5\n30;2,25\n")
    >>> detected(path)
    Dialect(separator=';', decimal=',', encoding='utf-8', missing=(), thousands=None)
    """
    try:
        with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as raw:
            data = letters = raw.read(_LOOK)
            while letters.isascii() and (more := raw.read(_LOOK)):
                letters = more
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{file} is no gzip file, or is damaged: export it again, or end its name with .csv") from None
    encoding = _encoding_of(letters, usual)
    lines = data.decode(encoding, errors="replace").removeprefix("\ufeff").splitlines()
    lines = [line for line in (lines[:-1] if len(data) == _LOOK else lines) if line.strip()][:200]
    named = SEPARATOR_LINE.match(lines[0]) if lines else None
    separator = max(_SEPARATORS, key=lambda one: _fits(lines, one))
    separator = separator if _fits(lines, separator) > (0, 0.0) else ","
    if named:
        separator, lines = named[1], lines[1:]
    cells = [cell.strip() for row in csv.reader(lines[1:], delimiter=separator) for cell in row]
    return _with_numbers(Dialect(separator, encoding=encoding), cells)


def encoding_beside(file: Path, dialect: Dialect) -> str:
    """Return the encoding for results beside a file: with a mark at the beginning if the file has one.

    A spreadsheet may take UTF-8 without the mark for something else.
    """
    if dialect.encoding != "utf-8" or not file.is_file():
        return dialect.encoding
    with file.open("rb") as raw:
        return "utf-8-sig" if raw.read(3) == codecs.BOM_UTF8 else "utf-8"


def _with_numbers(dialect: Dialect, cells: list[str]) -> Dialect:
    """Return a dialect with the decimal point and the thousands of its cells.

    A cell such as ``1,250`` shows nothing by itself: it may have three decimals, or a group of three digits.
    """

    def number_of(pattern: str) -> int:
        return sum(re.fullmatch(pattern, cell) is not None for cell in cells)

    def decimals(mark: str, group: str) -> float:
        numbers, unclear = number_of(rf"[+-]?\d+{mark}\d+"), number_of(rf"[+-]?[1-9]\d{{0,2}}{mark}\d{{3}}")
        return numbers - 0.75 * unclear + number_of(rf"[+-]?[1-9]\d{{0,2}}(?:{group}\d{{3}})+{mark}\d+")

    if dialect.separator != "," and decimals(",", r"\.") > decimals(r"\.", ","):
        dialect = replace(dialect, decimal=",")
    marks = [mark for mark in _THOUSANDS if mark not in (" ", ".", dialect.decimal)]
    counts = {mark: number_of(replace(dialect, thousands=mark).grouped) for mark in marks}
    likely = max(counts, key=lambda mark: counts[mark])
    others = number_of(r"[+-]?\d+,\d+") - number_of(r"[+-]?[1-9]\d{0,2},\d{3}") if likely == "," else 0
    return replace(dialect, thousands=likely) if counts[likely] > others else dialect


def _encoding_of(data: bytes, usual: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data.isascii():
        return usual
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return "cp1252" if usual == "utf-8" else usual
    return "utf-8"


def _fits(lines: list[str], separator: str) -> tuple[int, float]:
    """Return how well a separator fits: whether lines agree on the number of fields, and how many these are."""
    counts = Counter(len(row) for row in csv.reader(lines, delimiter=separator) if row)
    if not counts:
        return (0, 0.0)
    fields, lines_with = counts.most_common(1)[0]
    return (0, 0.0) if fields < 2 else (int(10 * lines_with / sum(counts.values())), fields)
