"""CSV files with a header: a column is what all of its cells are."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from fedspan.datasets.sources.csv_dialect import SEPARATOR_LINE, Dialect, detected
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

#: Wanted columns and the types of all, then the batches: what a reader returns for a file.
Opened = tuple[list[str], Callable[[list[str]], "Iterator[pa.RecordBatch]"]]
#: Words in the cells of a CSV file that were taken as missing cells: by column, with their numbers.
Words = dict[str, dict[str, int]]


def open_csv(file: Path, dialect: Dialect, separator: str, words: Words) -> Opened:
    """Open a CSV file with a header; `words` gets the words that were taken as missing cells, when it is read.

    A column holds truth values, whole numbers or numbers if all of its cells do; otherwise it is text. The file is read
    once, as text. Of each column the first cells show what to try, and all cells settle what it is.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    separator = dialect.separator or separator
    if separator == dialect.decimal:
        raise InputError(f"decimal={separator!r} also separates the fields of {file}: state another separator")
    bad_rows: list[Any] = []

    def refuse(row: Any) -> str:
        if not row.text.strip():
            return "skip"
        bad_rows.append(row)
        return "error"

    def options(
        *, lines: bool = False, bad: Callable[[Any], str] = refuse, block: int = 2**20, **more: Any
    ) -> dict[str, Any]:
        return {
            # With one thread, a bad line has its number.
            "read_options": arrow_csv.ReadOptions(
                encoding=dialect.encoding, use_threads=not lines, block_size=block, skip_rows=above
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=separator, newlines_in_values=lines, invalid_row_handler=bad
            ),
            # The letters of the columns that stay text are checked afterwards.
            "convert_options": arrow_csv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, check_utf8=False, **more
            ),
        }

    _refuse_no_text(file, dialect.encoding)
    all_names, above = _header(file, dialect.encoding, separator)
    names = [name for name in all_names if name]
    # Every block costs time for each column.
    block = min(_LARGEST_BLOCK, max(2**22, 2**12 * len(names)))
    marks = [mark for mark in ";\t|," if mark != separator and mark in names[0]] if len(names) == 1 else []
    if marks and (marks[0] != "," or detected(file).separator == ","):  # a name such as "weight, kg" has commas
        raise InputError(
            f"the first line of {file} names one column, {names[0]!r}: state what separates its fields, for example "
            f"separator = {marks[0]!r}"
        )

    def texts_of(wanted: list[str], newlines: bool = False) -> pa.Table:
        bad_rows.clear()
        try:
            types = dict.fromkeys(wanted, pa.string())
            found = arrow_csv.read_csv(
                file, **options(lines=newlines, block=block, column_types=types, include_columns=wanted)
            )
            return found.slice(0, len(found) - _empty_at_end(file, separator))
        except pa.ArrowInvalid:
            if not bad_rows:
                raise
            if not newlines:  # perhaps a cell holds the end of a line
                return texts_of(wanted, newlines=True)
            _refuse_row(bad_rows, file)
            raise

    def settled_column(column: list[pa.ChunkedArray]) -> tuple[pa.ChunkedArray, dict[str, int]]:
        found, counts = _settled(column.pop(), dialect)  # the text of a column goes as its numbers come
        found.validate(full=pa.types.is_string(found.type))
        return found, counts

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        texts = [[column] for column in texts_of(wanted).columns]
        with ThreadPoolExecutor(_THREADS) as pool:
            long = any(len(column) > _LONG for (column,) in texts)
            found = list((pool.map if long else map)(settled_column, texts))
        words.update({name: counts for name, (_, counts) in zip(wanted, found, strict=True) if counts})
        yield from pa.table([column for column, _ in found], names=wanted).to_batches()

    if len(names) < len(all_names):
        _refuse_unnamed(arrow_csv.read_csv(file, **options(lines=True, column_types={"": pa.string()})), file)
    return names, batches


_TRUTH = ["true", "True", "TRUE", "false", "False", "FALSE"]
#: Words for a missing number.
_MISSING_NUMBERS = (
    *("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None", "none"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)


_LOOKS_PLAIN = re.compile(r"\s*([-+.\d].*|true|false|inf|infinity|)\s*", re.IGNORECASE)
#: Bytes of the largest block of rows that is converted at a time.
_LARGEST_BLOCK = 2**26
#: Bytes at the end of a file that are looked at for empty rows.
_TAIL = 2**12
#: Columns that are converted at a time.
_THREADS = min(8, os.cpu_count() or 1)
#: Rows of a column that is worth a thread.
_LONG = 2**14
#: Rows of a column whose cells show that it is text.
_FIRST_ROWS = 50
#: Lines above the names of the columns, and that of the names.
_MOST_TITLES = 50


def _header(file: Path, encoding: str, separator: str) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of lines above them: titles, which have no separator."""
    with _opened(file) as raw, io.TextIOWrapper(raw, encoding, newline="") as text:
        reader, above, rows = csv.reader(text, delimiter=separator), 0, []
        for row in islice(reader, _MOST_TITLES):
            if not above and SEPARATOR_LINE.match(separator.join(row)):
                above = reader.line_num
                continue
            rows += [(above, row)] if row else []
            above = reader.line_num
            if len(row) > 1:
                break
    # A row of values is no row of names: then the first line was to name the columns, and it does not fit.
    named = len(rows[-1][1]) > 1 and not any(cell and _LOOKS_PLAIN.fullmatch(cell) for cell in rows[-1][1])
    lines, first = rows[-1] if named else rows[0]
    return [first[0].removeprefix("\ufeff"), *first[1:]], lines


def _empty_at_end(file: Path, separator: str) -> int:
    """Return the number of lines at the end of a file that hold separators alone, as spreadsheets export empty rows."""
    if file.name.lower().endswith(".gz"):
        return 0
    space, count = f" \t\r\n{separator}".encode(), _TAIL
    with file.open("rb") as raw:
        size = raw.seek(0, os.SEEK_END)
        while True:
            raw.seek(max(0, size - count))
            tail = raw.read()
            empty = tail[len(tail.rstrip(space)) :]
            if len(empty) < len(tail) or count >= size:
                return sum(separator.encode() in line for line in empty.splitlines()[1:])
            count *= 8


def _is_word(cell: str | None) -> bool:
    """Return whether a cell makes its column one of text: no number, truth value or word for a missing one."""
    return not (cell is None or cell.strip() in _MISSING_NUMBERS or _LOOKS_PLAIN.fullmatch(cell))


def _settled(column: pa.ChunkedArray, dialect: Dialect) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return a column of texts as what all of its cells are, and the words taken as missing cells with their counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, whole = column.slice(0, _FIRST_ROWS), True
    try:
        whole = pa.types.is_integer(_as_numbers(first, dialect, whole).type)
    except pa.ArrowInvalid:
        if any(map(_is_word, _without(first, dialect.missing)[0].to_pylist())):
            return _without(column, dialect.missing)
        shown = _settled(first, dialect)[0].type if len(column) > _FIRST_ROWS else None
        if shown is not None and pa.types.is_string(shown):
            return _without(column, dialect.missing)  # such as dates
        whole = shown is None or not pa.types.is_floating(shown)  # a cast that fails takes as long as one that does not
    else:
        if not any(_LOOKS_PLAIN.fullmatch(word) for word in dialect.missing):  # else "-9" may be missing
            with suppress(pa.ArrowInvalid):
                return _as_numbers(column, dialect, whole), {}
    words = (*dialect.missing, *_MISSING_NUMBERS)
    # A cell with groups of digits casts to no number, and finding that out takes longer than a cast that does.
    shown_cells = _without(first, words)[0]
    grouped = dialect.groups is not None and pc.any(pc.match_substring(shown_cells, dialect.groups)).as_py()
    for tidied in (lambda cells: cells, pc.utf8_trim_whitespace, _without_percent_signs):
        cells, taken = _without(tidied(column), ("", *words))
        if not grouped:
            with suppress(pa.ArrowInvalid):
                return _as_numbers(cells, dialect, whole), taken
            if pc.all(pc.is_in(cells.drop_null(), value_set=pa.array(_TRUTH))).as_py():
                return cells.cast(pa.bool_()), taken
        with suppress(pa.ArrowInvalid):
            return _as_numbers(_ungrouped(cells, dialect), Dialect(), whole=True), taken
    return _without(column, dialect.missing)


def _as_numbers(texts: pa.ChunkedArray, dialect: Dialect, whole: bool) -> pa.ChunkedArray:
    """Return texts as numbers, as whole ones if they may be and are; or raise `ArrowInvalid`."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        if whole:
            return texts.cast(pa.int64())
    if dialect.decimal == ",":
        texts = pa.chunked_array(map(_with_points, texts.chunks), pa.string())
    return texts.cast(pa.float64())


def _ungrouped(texts: pa.ChunkedArray, dialect: Dialect) -> pa.ChunkedArray:
    """Return texts such as ``1.250,5`` as ``1250.5``; beside decimal commas also those that have only points.

    Raise `ArrowInvalid` where other texts are among them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def all_are(pattern: str) -> bool:
        return pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py() is not False

    point = re.escape(dialect.decimal)
    if dialect.groups and all_are(rf"{dialect.grouped}|[+-]?[0-9]+(?:{point}[0-9]+)?"):
        texts = pc.replace_substring(texts, dialect.groups, "")
        return pc.replace_substring(texts, dialect.decimal, ".")
    if dialect.decimal == "," and not pc.any(pc.match_substring(texts, ",")).as_py():
        return texts
    raise pa.ArrowInvalid("neither groups of three digits nor points")


def _without_percent_signs(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts such as ``97 %`` as ``97``."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"([0-9])\s*%$", r"\1")


def _with_points(texts: pa.Array) -> pa.Array:
    """Return texts with a point in place of every comma; or raise `ArrowInvalid` where they have points already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing, offsets, letters = texts.buffers()
    if letters is None:  # no text at all
        return texts
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    own = np.frombuffer(letters, dtype=np.uint8)[ends[0] : ends[-1]]
    if (own == ord(".")).any() and pc.any(pc.match_substring(texts, ".")).as_py():  # not only in a missing cell
        raise pa.ArrowInvalid("points beside decimal commas")
    points = own + np.uint8(ord(".") - ord(",")) * (own == ord(","))
    changed = [missing, pa.py_buffer(ends - ends[0]), pa.py_buffer(points)]
    if texts.offset:
        changed[0] = pa.py_buffer(np.packbits(texts.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(texts), changed)


def _without(cells: pa.ChunkedArray, words: Sequence[str]) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return texts in which the cells that hold one of `words` are missing, and the number of these by word."""
    import pyarrow as pa

    if not words:
        return cells, {}
    counts: Counter[str] = Counter()
    together = cells.combine_chunks()  # still in parts if one array can't hold it
    parts = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
    chunks = [_chunk_without(part, words, counts) for part in parts]
    del counts[""]
    return pa.chunked_array(chunks, pa.string()), dict(counts)


def _chunk_without(cells: pa.Array, words: Sequence[str], counts: Counter[str]) -> pa.Array:
    """Return a part of a column without the cells that hold one of `words`, and add the numbers of these to `counts`.

    Only cells that are as short as a word and end with the last letter of one are compared: of numbers, hardly any.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, letters = cells.buffers()
    n = len(cells)
    if not n or letters is None:
        return cells
    ends = np.frombuffer(offsets, dtype=np.int32)[cells.offset : cells.offset + n + 1]
    sizes = np.diff(ends)
    places = np.flatnonzero((sizes <= max(len(word.encode()) for word in words)) & (sizes >= min(map(len, words))))
    last = np.zeros(256, dtype=bool)
    last[[word.encode()[-1] for word in words if word]] = True
    if letters.size:
        ended = last[np.frombuffer(letters, dtype=np.uint8)[ends[places + 1] - 1]]
        places = places[ended | (sizes[places] == 0)]
    near = cells.take(pa.array(places))
    found = pc.is_in(near, value_set=pa.array(words, pa.string()))
    if not pc.any(found).as_py():
        return cells
    counts.update({entry["values"]: entry["counts"] for entry in near.filter(found).value_counts().to_pylist()})
    valid = cells.is_valid().to_numpy(zero_copy_only=False).copy()
    valid[places[found.to_numpy(zero_copy_only=False)]] = False
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), n, [bits, pa.py_buffer(ends), letters])


def _refuse_unnamed(table: pa.Table, file: Path) -> None:
    """Refuse columns without a name, unless they are empty or, in the first place, number the rows."""
    for place, name in enumerate(table.column_names):
        if name or (place == 0 and table.column(0).to_pylist() == [str(row) for row in range(len(table))]):
            continue
        if any(cell not in (None, "") for cell in table.column(place).unique().to_pylist()):
            raise InputError(f"{file} has values in column {place + 1}, which has no name: name it, or leave it out")


def _refuse_row(rows: list[Any], file: Path) -> None:
    """Refuse a line with too many or too few fields, without showing it."""
    if rows:
        row = rows[0]
        where = f"line {row.number}" if row.number is not None else "a line"
        raise InputError(
            f"{file}: {where} has {row.actual_columns} fields, and the header names {row.expected_columns} columns: "
            "correct the line, or state another separator"
        )


def _refuse_no_text(file: Path, encoding: str) -> None:
    with _opened(file) as raw:
        head = raw.read(2**16)
    if not head.strip():
        raise InputError(f"{file} is empty: its first line must name the columns")
    if encoding.lower().startswith(("utf-16", "utf-32", "utf16", "utf32")):
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{file} is text in UTF-16: state its encoding, encoding = 'utf-16'")
    if b"\0" in head:
        raise ValueError("no text")


def _opened(file: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file)) if file.name.endswith(".gz") else file.open("rb")
