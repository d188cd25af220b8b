"""CSV files with a header: a column is what all of its cells are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.datasets.sources.csv_dialect import Dialect, detected
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

#: Wanted columns and the types of all, then the batches: what a reader returns for a file.
Opened = tuple[list[str], Callable[[list[str]], "Iterator[pa.RecordBatch]"]]
#: Words in the cells of a CSV file that were taken as missing cells: by column, with their numbers.
Words = dict[str, dict[str, int]]


def open_csv(file: Path, dialect: Dialect, separator: str, words: Words) -> Opened:
    """Open a CSV file with a header; `words` gets the words that were taken as missing cells, when it is read.

    A column holds truth values, whole numbers or numbers if all of its cells do; otherwise it is text. The first rows
    show what a column seems to be, and the file is read so. Where a later cell contradicts them, it is read again as
    text, and all cells settle what a column is.
    """
    import pyarrow as pa
    from pyarrow import csv

    separator = dialect.separator or separator
    if separator == dialect.decimal:
        raise InputError(f"decimal={separator!r} is what separates the fields of {file}, too: state its separator")
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
            "read_options": csv.ReadOptions(encoding=dialect.encoding, use_threads=not lines, block_size=block),
            "parse_options": csv.ParseOptions(delimiter=separator, newlines_in_values=lines, invalid_row_handler=bad),
            "convert_options": csv.ConvertOptions(
                decimal_point=dialect.decimal,
                null_values=[""],
                true_values=_TRUTH[:3],
                false_values=_TRUTH[3:],
                strings_can_be_null=True,
                check_utf8=False,  # done for the columns that stay text
                **more,
            ),
        }

    if _is_empty(file):
        raise InputError(f"{file} is empty: its first line must name the columns")
    schema = _look(file, lambda block: options(bad=lambda row: "skip", block=block))
    names = [name for name in schema.names if name]
    # Every block costs time for each column.
    block = min(_LARGEST_BLOCK, max(2**22, 2**12 * len(names)))
    marks = [mark for mark in ";\t|," if mark != separator and mark in names[0]] if len(names) == 1 else []
    if marks and (marks[0] != "," or detected(file).separator == ","):  # a name such as "weight, kg" has commas
        raise InputError(
            f"the first line of {file} names one column, {names[0]!r}: state what separates its fields, for example "
            f"separator = {marks[0]!r}"
        )

    def table_of(types: dict[str, pa.DataType], newlines: bool = False) -> pa.Table:
        bad_rows.clear()
        try:
            found = options(lines=newlines, block=block, column_types=types, include_columns=list(types))
            return csv.read_csv(file, **found)
        except pa.ArrowInvalid:
            if not bad_rows:
                raise
            if not newlines:  # perhaps a cell holds the end of a line
                return table_of(types, newlines=True)
            _refuse_row(bad_rows, file)
            raise

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        found = {entry.name: entry.type for entry in schema}
        types = {name: _csv_type(found[name], dialect) for name in wanted}
        try:
            table = table_of(types)
        except pa.ArrowInvalid:
            table = table_of(dict.fromkeys(wanted, pa.string()))
        columns = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            settled, counts = (
                _settled(column, dialect, types[name]) if pa.types.is_string(column.type) else (column, {})
            )
            settled.validate(full=pa.types.is_string(settled.type))
            columns.append(settled)
            words.update({name: counts} if counts else {})
        yield from pa.table(columns, names=table.column_names).to_batches()

    if len(names) < len(schema.names):
        _refuse_unnamed(csv.read_csv(file, **options(lines=True, column_types={"": pa.string()})), file)
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
#: Rows of a column whose cells show that it is text.
_FIRST_ROWS = 50


def _look(file: Path, options: Callable[[int], dict[str, Any]]) -> pa.Schema:
    """Return the names of the columns and what the first rows, about a thirtieth of the file, seem to be."""
    from pyarrow import ArrowInvalid, csv

    block = min(2**20, max(2**16, file.stat().st_size // 32))
    while True:
        try:
            with csv.open_csv(file, **options(block)) as reader:
                return reader.schema
        except ArrowInvalid:  # perhaps the block ends within the first line
            if block >= _LARGEST_BLOCK:
                raise
            block *= 16


def _csv_type(found: pa.DataType, dialect: Dialect) -> pa.DataType:
    """Return the type to read a column as, from what its first cells look like: dates and words stay text."""
    import pyarrow as pa
    from pyarrow import types

    plain = types.is_integer(found) or types.is_floating(found) or types.is_boolean(found)
    # A word such as "-9" or "true" would be read as what it looks like.
    return found if plain and not any(_LOOKS_PLAIN.fullmatch(word) for word in dialect.missing) else pa.string()


def _is_word(cell: str | None) -> bool:
    """Return whether a cell makes its column one of text: it is no number, truth value or word for a missing number."""
    return not (cell is None or cell.strip() in _MISSING_NUMBERS or _LOOKS_PLAIN.fullmatch(cell))


def _settled(column: pa.ChunkedArray, dialect: Dialect, likely: pa.DataType) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return a column of texts as what all of its cells are, and the words taken as missing cells with their counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(likely) or pa.types.is_integer(likely):
        with suppress(pa.ArrowInvalid):
            return _as_numbers(column, dialect, whole=pa.types.is_integer(likely)), {}
    first = column.slice(0, _FIRST_ROWS)
    if any(map(_is_word, _without(first, dialect.missing)[0].to_pylist())):
        return _without(column, dialect.missing)
    shown = _settled(first, dialect, pa.string())[0].type if len(column) > _FIRST_ROWS else None
    if shown is not None and pa.types.is_string(shown):
        return _without(column, dialect.missing)  # such as dates
    whole = shown is None or not pa.types.is_floating(shown)  # a cast that fails takes as long as one that does not
    words = (*dialect.missing, *_MISSING_NUMBERS)
    for trim in (False, True):
        cells, taken = _without(pc.utf8_trim_whitespace(column) if trim else column, ("", *words) if trim else words)
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
    import pyarrow.compute as pc

    with suppress(pa.ArrowInvalid):
        if whole:
            return texts.cast(pa.int64())
    if dialect.decimal == ",":
        if pc.any(pc.match_substring(texts, ".")).as_py():
            raise pa.ArrowInvalid("points beside decimal commas")
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


def _with_points(texts: pa.Array) -> pa.Array:
    """Return texts with a point in place of every comma."""
    import pyarrow as pa

    missing, offsets, letters = texts.buffers()
    if letters is None:  # no text at all
        return texts
    changed = np.frombuffer(letters, dtype=np.uint8).copy()
    changed[changed == ord(",")] = ord(".")
    return pa.Array.from_buffers(
        pa.string(), len(texts), [missing, offsets, pa.py_buffer(changed)], offset=texts.offset
    )


def _without(cells: pa.ChunkedArray, words: Sequence[str]) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return texts in which the cells that hold one of `words` are missing, and the number of these by word."""
    import pyarrow as pa

    counts: Counter[str] = Counter()
    chunks = [_chunk_without(chunk, words, counts) for chunk in cells.chunks] if words else cells.chunks
    del counts[""]
    return pa.chunked_array(chunks, pa.string()), dict(counts)


def _chunk_without(cells: pa.Array, words: Sequence[str], counts: Counter[str]) -> pa.Array:
    """Return a part of a column without the cells that hold one of `words`, and add the numbers of these to `counts`.

    Only cells that end with the last letter of a word are compared with the words: of numbers, hardly any.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, letters = cells.buffers()
    n = len(cells)
    if not n or letters is None:
        return cells
    ends = np.frombuffer(offsets, dtype=np.int32)[cells.offset : cells.offset + n + 1]
    last = np.zeros(256, dtype=bool)
    last[[word.encode()[-1] for word in words if word]] = True
    perhaps = last[np.frombuffer(letters, dtype=np.uint8)[ends[1:] - 1]] if letters.size else np.zeros(n, dtype=bool)
    places = np.flatnonzero(perhaps | (ends[1:] == ends[:-1]) if "" in words else perhaps)
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


def _is_empty(file: Path) -> bool:
    import gzip

    with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as raw:
        return not raw.read(2**16).strip()
