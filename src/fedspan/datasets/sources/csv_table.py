"""CSV files with a header: a column is what all of its cells are."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from fedspan.datasets.sources.csv_columns import LOOKS_PLAIN, NumberBlocks, settled
from fedspan.datasets.sources.csv_dialect import SEPARATOR_LINE, Dialect, detected
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

#: Wanted columns and the types of all, then the batches: what a reader returns for a file.
Opened = tuple[list[str], Callable[[list[str]], "Iterator[pa.RecordBatch | pa.Table]"]]
#: Words in the cells of a CSV file that were taken as missing cells: by column, with their numbers.
Words = dict[str, dict[str, int]]


def open_csv(file: Path, dialect: Dialect, separator: str, words: Words) -> Opened:
    """Open a CSV file with a header; `words` gets the words that were taken as missing cells, when it is read.

    A column holds truth values, whole numbers or numbers if all of its cells do; otherwise it is text. The file is read
    once, as text. Of each column the first cells show what to try, and all cells settle what it is: a block of rows
    becomes numbers while the next one is read, and its texts stay until no block contradicts.
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

    def options(*, lines: bool = False, block: int = 2**20, **more: Any) -> dict[str, Any]:
        return {
            # With one thread, a bad line has its number.
            "read_options": arrow_csv.ReadOptions(
                encoding=dialect.encoding, use_threads=not lines, block_size=block, skip_rows=above
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=separator, newlines_in_values=lines, invalid_row_handler=refuse
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
    block_size = min(_LARGEST_BLOCK, max(2**21, 2**13 * len(names)))
    marks = [mark for mark in ";\t|," if mark != separator and mark in names[0]] if len(names) == 1 else []
    if marks and (marks[0] != "," or detected(file).separator == ","):  # a name such as "weight, kg" has commas
        raise InputError(
            f"the first line of {file} names one column, {names[0]!r}: state what separates its fields, for example "
            f"separator = {marks[0]!r}"
        )

    def read(wanted: list[str], newlines: bool = False) -> pa.Table:
        bad_rows.clear()
        blocks: list[pa.RecordBatch] = []
        as_text = {"column_types": dict.fromkeys(wanted, pa.string()), "include_columns": wanted}
        shown = NumberBlocks(dialect)
        try:
            reading = arrow_csv.open_csv(file, **options(lines=newlines, block=block_size, **as_text))
            with reading as reader, ThreadPoolExecutor(_THREADS) as pool:
                results = []
                for block in reader:
                    if not blocks:
                        shown.look(block)
                    blocks.append(block)
                    results.append(pool.submit(shown.numbers, block))
                parts = [result.result() for result in results]
        except pa.ArrowInvalid:
            if not newlines:  # perhaps a cell holds the end of a line
                return read(wanted, newlines=True)
            _refuse_row(bad_rows, file)
            raise
        texts = pa.Table.from_batches(blocks, reader.schema)
        rows = len(texts) - _empty_at_end(file, separator)

        def settled_column(name: str) -> tuple[pa.ChunkedArray, dict[str, int]]:
            found, counts = shown.column(name, parts) or settled(texts.column(name)[:rows], dialect)
            found.validate(full=pa.types.is_string(found.type))
            return found[:rows], counts

        with ThreadPoolExecutor(_THREADS) as pool:
            found = list((pool.map if rows > _LONG else map)(settled_column, wanted))
        words.update({name: counts for name, (_, counts) in zip(wanted, found, strict=True) if counts})
        return pa.table([column for column, _ in found], names=wanted)

    if len(names) < len(all_names):
        _refuse_unnamed(arrow_csv.read_csv(file, **options(lines=True, column_types={"": pa.string()})), file)
    return names, lambda wanted: iter([read(wanted)])


#: Bytes of the largest block of rows that is converted at a time.
_LARGEST_BLOCK = 2**26
#: Bytes at the end of a file that are looked at for empty rows.
_TAIL = 2**12
#: Columns that are converted at a time.
_THREADS = min(8, os.cpu_count() or 1)
#: Rows of a column that is worth a thread.
_LONG = 2**14
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
    named = len(rows[-1][1]) > 1 and not any(cell and LOOKS_PLAIN.fullmatch(cell) for cell in rows[-1][1])
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
