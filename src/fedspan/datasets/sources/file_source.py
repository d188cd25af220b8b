"""Tables in files: CSV, JSON lines, Parquet, Feather, Excel and NPZ, recognised by the ending of their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.datasets.sources.csv_dialect import DIALECT_KEYS, Dialect, detected
from fedspan.datasets.sources.csv_table import Opened, Words, open_csv
from fedspan.datasets.sources.row_filter import RowFilter
from fedspan.datasets.sources.table_source import Choose, batch_rows, chosen, read_batches
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_DATASETS = {".parquet": "parquet", ".feather": "ipc", ".arrow": "ipc"}
_EXCEL = (".xlsx", ".xls", ".ods")
_JSON = (".jsonl", ".ndjson")
ENDINGS = (*CSV_ENDINGS, *_JSON, *_DATASETS, *_EXCEL, ".npz")

#: Bytes of JSON whose values settle the type of a column.
_JSON_BLOCK = 2**24
_WORDS = "words taken as missing"
#: Rows of a sheet among which the one with the names of the columns is looked for.
_MOST_TITLES = 50


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
            raise InputError(f"{self.file}: {', '.join(DIALECT_KEYS)} are for {CSV_ENDINGS[0]} files")

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
            raise InputError("reading tables needs pyarrow and pandas: pip install '.[tables]' in a checkout") from None
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
            reason = _reason(error, self.dialect.encoding)
        # Here, and not in the handler: no reader's error, with rows in its locals, is attached to this one.
        raise InputError(f"{self.file} cannot be read as {self.ending}: {reason}")

    def dataset(self) -> Any:
        """Return the Arrow dataset of a Parquet or Feather file, or of a folder of Parquet files."""
        import pyarrow.dataset as ds

        try:
            return ds.dataset(self.file, format=_DATASETS[self.ending])
        except Exception as error:
            reason = _reason(error, self.dialect.encoding)
        raise InputError(f"{self.file} cannot be read as {self.ending}: {reason}")

    @property
    def streams(self) -> bool:
        """Whether the file can be read in blocks: columns of text files are what all of their cells are."""
        return self.ending in _DATASETS

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
            return open_csv(self.file, self.dialect, "\t" if ending.startswith(".tsv") else ",", words)
        if ending in _JSON:
            return _open_json(self.file)
        if ending == ".npz":
            return _open_npz(self.file)
        if ending in _EXCEL:
            return _open_excel(self.file)
        dataset = self.dataset()
        names = list(dataset.schema.names)
        return names, lambda wanted: dataset.to_batches(columns=wanted, batch_size=batch_rows(len(names)))


def missing_words(frame: pd.DataFrame) -> Words:
    """Return the words that were taken as missing cells when a table was read: by column, with their numbers."""
    words: Words = frame.attrs.get(_WORDS, {})
    return words


def read_table(file: Path, dialect: Dialect | None = None) -> pd.DataFrame:
    """Read a whole file, or raise an `InputError` with the reason."""
    return FileSource(file, dialect or Dialect()).read()


def read_as_shown(file: Path) -> pd.DataFrame:
    """Read a whole file; a CSV file in the dialect that it shows."""
    is_csv = file.is_file() and FileSource(file).ending in CSV_ENDINGS
    return read_table(file, detected(file) if is_csv else None)


def _open_json(file: Path) -> Opened:
    """Open a file of JSON objects, one a line, whose keys name the columns; a row may lack some."""
    from pyarrow import json

    if not file.stat().st_size:
        raise InputError(f"{file} is empty: its lines must be JSON objects")
    table = json.read_json(file, read_options=json.ReadOptions(block_size=_JSON_BLOCK))

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(wanted).to_batches()

    return list(table.column_names), batches


def _open_npz(file: Path) -> Opened:
    """Open an archive with X (n, d), optionally feature_names (d,), and one array (n,) for each further column."""
    loaded = np.load(file, allow_pickle=False, mmap_mode=None)
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise InputError(f"{file} holds a single array, and must be an NPZ archive with an array X")
    with loaded as arrays:
        found = {key: arrays[key] for key in arrays.files}
    shapes = [f"{key} {array.shape}" for key, array in found.items()] or ["nothing"]
    X = found.pop("X", np.zeros(0))
    if X.ndim != 2 or X.dtype.kind not in "buif":
        raise InputError(f"{file} must hold an array X of rows and columns of numbers; it holds {', '.join(shapes)}")
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
    """Open the first sheet of a workbook that holds a table."""
    import pandas as pd

    try:
        sheets = pd.read_excel(file, engine="calamine", sheet_name=None, header=None)
    except ImportError:
        raise InputError(f"reading {file} needs python-calamine: pip install '.[excel]' in a checkout") from None
    frame = next((found for sheet in sheets.values() if len(found := _below_titles(sheet))), pd.DataFrame())
    unnamed = [str(place + 1) for place, name in enumerate(frame.columns) if not name]
    if unnamed:
        raise InputError(f"{file} has values in column {unnamed[0]}, which has no name: name it, or leave it out")

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = {}
        for name in wanted:
            column = frame[name]
            mixed = column.dtype == object and len({type(cell) for cell in column.dropna()}) > 1
            columns[name] = column.map(str, na_action="ignore") if mixed else column
        yield from pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False).to_batches()

    return list(frame.columns), batches


def _below_titles(sheet: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a sheet, without titles: rows of one cell above a row of texts that names all columns."""
    sheet = sheet.dropna(how="all").dropna(how="all", axis=1)
    filled = sheet.iloc[:_MOST_TITLES].notna().sum(axis=1).to_numpy()
    head = int((filled > 1).argmax()) if len(sheet) else 0
    if head and not all(isinstance(name, str) for name in sheet.iloc[head]):
        head = 0
    table = sheet.iloc[head + 1 :].infer_objects()
    if len(sheet):
        table.columns = [str(name) for name in sheet.iloc[head].astype(object).fillna("")]
    return table.reset_index(drop=True)


def _reason(error: Exception, encoding: str) -> str:
    """Return what a reader reports of a file as a whole; of an error that may be about a value, only its name."""
    if isinstance(error, UnicodeError) or "UTF8" in str(error)[:200]:
        what, other = ("UTF-8 text", "cp1252") if encoding == "utf-8" else (f"text in {encoding!r}", "utf-8")
        return f"it is not {what}; state its encoding, for example encoding = {other!r}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    structure = ("Parquet", "Not a Feather", "File is not a zip", "Not an Arrow", "JSON parse error: Column(")
    if any(word in str(error)[:80] for word in structure):
        return str(error).splitlines()[0]
    return (
        f"it is damaged, or of another kind ({type(error).__name__}): export it again; more is not shown, because it "
        "may hold values"
    )
