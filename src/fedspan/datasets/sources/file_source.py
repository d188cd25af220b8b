"""Tables in files: CSV, Parquet, Feather, Excel and NPZ, recognised by the ending of their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.datasets.sources.csv_dialect import Dialect
from fedspan.datasets.sources.row_filter import RowFilter
from fedspan.datasets.sources.table_source import Choose, batch_rows, chosen, read_batches
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_DATASETS = {".parquet": "parquet", ".feather": "ipc", ".arrow": "ipc"}
_EXCEL = (".xlsx", ".xls", ".ods")
ENDINGS = (*CSV_ENDINGS, *_DATASETS, *_EXCEL, ".npz")

#: Wanted columns and the types of all, then the batches: what a reader returns for a file.
Opened = tuple[list[str], Callable[[list[str]], "Iterator[pa.RecordBatch]"]]
#: Words in the cells of a CSV file that were taken as missing cells: by column, with their numbers.
Words = dict[str, dict[str, int]]
_WORDS = "words taken as missing"


@dataclass(frozen=True)
class FileSource:
    """One table in one file, or in a folder of Parquet files.

    Parameters
    ----------
    file : path
        Its ending decides how it is read; a folder holds Parquet files.
    dialect : Dialect, optional
        How a CSV file is written.
    """

    file: Path
    dialect: Dialect = field(default_factory=Dialect)

    def __post_init__(self) -> None:
        if self.ending not in CSV_ENDINGS and self.dialect != Dialect():
            raise InputError(f"{self.file}: separator, decimal, encoding and missing are for {CSV_ENDINGS[0]} files")

    @property
    def label(self) -> str:
        """The file's path."""
        return str(self.file)

    @property
    def ending(self) -> str:
        """The ending that decides how the file is read."""
        if self.file.is_dir():
            return ".parquet"
        for ending in ENDINGS:
            if self.file.name.lower().endswith(ending):
                return ending
        raise InputError(f"{self.file}: tables are read from {', '.join(ENDINGS)} files")

    def read(self, choose: Choose | None = None, where: RowFilter | None = None) -> pd.DataFrame:
        """Read the chosen columns of the rows that `where` keeps, or raise an `InputError` with the reason."""
        if not self.file.exists():
            raise InputError(f"the file {self.file} does not exist: correct its name")
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise InputError("reading tables needs pyarrow and pandas: pip install 'fedspan[tables]'") from None
        words: Words = {}
        try:
            names, batches = self._open(words)
            wanted = chosen(names, choose, self.label)
            tested = () if where is None else where.columns
            missing = [name for name in tested if name not in names]
            if missing:
                raise InputError(f"{self.file} has no column {missing[0]!r}, which 'where' is about")
            frame = read_batches(batches([*wanted, *(set(tested) - set(wanted))]), wanted, where, self.label)
            frame = _by_rows(frame) if self.ending == ".npz" else frame
            frame.attrs[_WORDS] = words
            return frame
        except InputError:
            raise
        except Exception as error:  # what a reader makes of bytes from outside
            reason = _reason(error)
        # Here, and not in the handler: no reader's error, with rows in its locals, is attached to this one.
        raise InputError(f"{self.file} cannot be read as {self.ending}: {reason}")

    def stamp(self) -> object:
        """Return which file it is, its size and when it was written; of a folder, of all its files."""
        try:
            files = sorted(self.file.rglob("*.parquet")) if self.file.is_dir() else [self.file]
            found = [file.stat() for file in files]
        except OSError:
            return None
        return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)

    def gone(self) -> bool:
        """Return whether the file no longer exists."""
        return not self.file.exists()

    def _open(self, words: Words) -> Opened:
        """Return the names of all columns, and a function that reads some of them in batches."""
        ending = self.ending
        if ending in CSV_ENDINGS:
            return _open_csv(self.file, self.dialect, "\t" if ending.startswith(".tsv") else ",", words)
        if ending == ".npz":
            return _open_npz(self.file)
        if ending in _EXCEL:
            return _open_excel(self.file)
        import pyarrow.dataset as ds

        dataset = ds.dataset(self.file, format=_DATASETS[ending])
        names = list(dataset.schema.names)
        return names, lambda wanted: dataset.to_batches(columns=wanted, batch_size=batch_rows(len(names)))


def missing_words(frame: pd.DataFrame) -> Words:
    """Return the words that were taken as missing cells when a table was read: by column, with their numbers."""
    words: Words = frame.attrs.get(_WORDS, {})
    return words


def read_table(file: Path, dialect: Dialect | None = None) -> pd.DataFrame:
    """Read a whole file, or raise an `InputError` with the reason."""
    return FileSource(file, dialect or Dialect()).read()


def _open_csv(file: Path, dialect: Dialect, separator: str, words: Words) -> Opened:
    """Open a CSV file with a header; `words` gets the words that were taken as missing cells, when it is read.

    A column holds truth values, whole numbers or numbers if all of its cells do; otherwise it is text. The file is read
    as text, and all cells settle what a column is. Of a large file, whose text would take too much memory, the first
    rows show what a column seems to be; only where a later cell contradicts them is it read again as text.
    """
    import pyarrow as pa
    from pyarrow import csv

    bad_rows: list[Any] = []

    def refuse(row: Any) -> str:
        if not row.text.strip():
            return "skip"
        bad_rows.append(row)
        return "error"

    def options(*, lines: bool = False, bad: Callable[[Any], str] = refuse, **more: Any) -> dict[str, Any]:
        return {
            # With one thread, a bad line has its number.
            "read_options": csv.ReadOptions(encoding=dialect.encoding, use_threads=not lines),
            "parse_options": csv.ParseOptions(
                delimiter=dialect.separator or separator, newlines_in_values=lines, invalid_row_handler=bad
            ),
            "convert_options": csv.ConvertOptions(
                decimal_point=dialect.decimal,
                null_values=[""],
                true_values=_TRUTH[:3],
                false_values=_TRUTH[3:],
                strings_can_be_null=True,
                **more,
            ),
        }

    if _is_empty(file):
        raise InputError(f"{file} is empty: its first line must name the columns")
    with csv.open_csv(
        file, **options(bad=lambda row: "skip")
    ) as reader:  # reads some rows, for the names and likely types
        schema = reader.schema
    names = [name for name in schema.names if name]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InputError(
            f"the first line of {file} names one column, {names[0]!r}: state what separates its fields, for example "
            "separator = ';'"
        )

    def table_of(types: dict[str, pa.DataType], newlines: bool = False) -> pa.Table:
        bad_rows.clear()
        try:
            return csv.read_csv(file, **options(lines=newlines, column_types=types, include_columns=list(types)))
        except pa.ArrowInvalid:
            if not bad_rows:
                raise
            if not newlines:  # perhaps a cell holds the end of a line
                return table_of(types, newlines=True)
            _refuse_row(bad_rows, file)
            raise

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        types = {name: _csv_type(schema.field(name).type, dialect) for name in wanted}
        texts = dict.fromkeys(wanted, pa.string())
        if file.stat().st_size <= _TEXT_FIRST:
            table = table_of(texts)
        else:
            try:
                table = table_of(types)
            except pa.ArrowInvalid:
                table = table_of(texts)
        for place, entry in enumerate(table.schema):
            if pa.types.is_string(entry.type):
                column, counts = _settled(table.column(place), dialect, types[entry.name])
                table = table.set_column(place, entry.name, column)
                words.update({entry.name: counts} if counts else {})
        yield from table.to_batches()

    if len(names) < len(schema.names):
        _refuse_unnamed(csv.read_csv(file, **options(lines=True, column_types={"": pa.string()})), file)
    return names, batches


_TRUTH = ["true", "True", "TRUE", "false", "False", "FALSE"]
#: Words for a missing number.
_MISSING_NUMBERS = (
    *("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None", "none"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)


_LOOKS_PLAIN = re.compile(r"\s*([-+.\d].*|true|false)\s*", re.IGNORECASE)
#: Bytes of the largest file that is read as text at once.
_TEXT_FIRST = 2**29
#: Rows that show whether a column is text.
_LOOK = 1000


def _csv_type(found: pa.DataType, dialect: Dialect) -> pa.DataType:
    """Return the type to read a column as, from what its first cells look like: dates and words stay text."""
    import pyarrow as pa
    from pyarrow import types

    plain = types.is_integer(found) or types.is_floating(found) or types.is_boolean(found)
    # A word such as "-9" or "true" would be read as what it looks like.
    return found if plain and not any(_LOOKS_PLAIN.fullmatch(word) for word in dialect.missing) else pa.string()


def _settled(
    column: pa.ChunkedArray, dialect: Dialect, likely: pa.DataType | None = None
) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return a column of texts as what all of its cells are, and the words taken as missing cells with their counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if likely is not None and pa.types.is_floating(likely):
        with suppress(pa.ArrowInvalid):
            return _as_floats(column, dialect.decimal), {}
    column, named = _without(column, dialect.missing)
    if len(column) > _LOOK and pa.types.is_string(_settled(column.slice(0, _LOOK), dialect)[0].type):
        return column, named
    for texts in (column, pc.utf8_trim_whitespace):
        cells, usual = _without(texts(column) if callable(texts) else texts, ("", *_MISSING_NUMBERS))
        with suppress(pa.ArrowInvalid):
            return _as_numbers(cells, dialect.decimal), named | usual
        if pc.all(pc.is_in(cells.drop_null(), value_set=pa.array(_TRUTH))).as_py():
            return cells.cast(pa.bool_()), named | usual
    return column, named


def _as_numbers(texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Return texts as whole numbers or numbers, or raise `ArrowInvalid`."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        return texts.cast(pa.int64())
    return _as_floats(texts, decimal)


def _as_floats(texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    import pyarrow as pa

    return (pa.chunked_array(map(_with_points, texts.chunks), pa.string()) if decimal == "," else texts).cast(
        pa.float64()
    )


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
    import pyarrow.compute as pc

    if not words:
        return cells, {}
    found = pc.is_in(cells, value_set=pa.array(words, pa.string()))
    if not pc.any(found).as_py():
        return cells, {}
    counts = {entry["values"]: entry["counts"] for entry in cells.filter(found).value_counts().to_pylist()}
    counts.pop("", None)
    return pc.if_else(found, pa.scalar(None, pa.string()), cells), counts


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


def _open_npz(file: Path) -> Opened:
    """Open an archive with X (n, d), optionally feature_names (d,), and one array (n,) for each further column."""
    loaded = np.load(file, allow_pickle=False, mmap_mode=None)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise InputError(f"{file} holds a single array, and must be an NPZ archive with an array X")
    with loaded as arrays:
        found = {key: arrays[key] for key in arrays.files}
    X = found.pop("X", np.zeros(0))
    if X.ndim != 2 or X.dtype.kind not in "buif":
        raise InputError(f"{file} must hold an array X of rows and columns of numbers; it holds {', '.join(found)}")
    names = [str(name) for name in found.pop("feature_names", [f"x{i}" for i in range(X.shape[1])])]
    if len(set(names)) != X.shape[1]:
        raise InputError(f"{file}: feature_names has {len(set(names))} different names for {X.shape[1]} columns")
    more = {key: array for key, array in found.items() if array.shape == X.shape[:1]}

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        place = {name: k for k, name in enumerate(names)}
        columns = [pa.array(X[:, place[name]] if name in place else more[name]) for name in wanted]
        yield pa.RecordBatch.from_arrays(columns, names=wanted)

    return [*names, *more], batches


def _by_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose first columns of one type lie in memory as in an array: row by row.

    The last bits of products depend on it, and a site has those of an array in memory.
    """
    import pandas as pd

    kinds = list(frame.dtypes)
    same = next((place for place, kind in enumerate(kinds) if kind != kinds[0]), len(kinds))
    values = np.ascontiguousarray(frame.iloc[:, :same].to_numpy())
    block = pd.DataFrame(values, columns=frame.columns[:same], copy=False)  # a copy would lie column by column
    for name in frame.columns[same:]:
        block[name] = frame[name]
    return block


def _open_excel(file: Path) -> Opened:
    """Open the first sheet of a workbook, whose first row names the columns."""
    import pandas as pd

    try:
        frame = pd.read_excel(file, engine="calamine")
    except ImportError:
        raise InputError(f"reading {file} needs python-calamine: pip install 'fedspan[excel]'") from None
    frame.columns = [str(name) for name in frame.columns]

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = {}
        for name in wanted:
            column = frame[name]
            mixed = column.dtype == object and len({type(cell) for cell in column.dropna()}) > 1
            columns[name] = column.map(str, na_action="ignore") if mixed else column
        yield from pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False).to_batches()

    return list(frame.columns), batches


def _reason(error: Exception) -> str:
    """Return what a reader reports of a file as a whole; of an error that may be about a value, only its name."""
    if isinstance(error, UnicodeError) or "UTF8" in str(error)[:200]:
        return "it is not UTF-8 text; state its encoding, for example encoding = 'cp1252'"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    structure = ("Parquet", "Not a Feather", "File is not a zip", "Not an Arrow")
    if any(word in str(error)[:80] for word in structure):
        return str(error).splitlines()[0]
    return (
        f"it is damaged, or of another kind ({type(error).__name__}): export it again; more is not shown, because it "
        "may hold values"
    )
