"""Tables in files: CSV, Parquet and NPZ, told by the ending of the name."""

from __future__ import annotations

import csv
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedspan.datasets.sources.csv_file import read_csv
from fedspan.datasets.sources.npz_file import read_npz
from fedspan.datasets.sources.parquet_file import read_parquet
from fedspan.datasets.sources.table_source import Choose, Keep, all_of, everything
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_READERS: dict[str, Callable[..., pd.DataFrame]] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}
ENDINGS = tuple(_READERS)
_TEXT = (".csv", ".csv.gz")


@dataclass(frozen=True)
class FileSource:
    """One table in one file.

    Parameters
    ----------
    file : path
        Its ending says how to read it.
    missing : texts
        What means a missing cell in a CSV file, beside an empty field and, among numbers, the usual words.
    """

    file: Path
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ending = self.ending  # or say that there is none
        if self.missing and ending not in _TEXT:
            raise InputError(f"{self.file} has marks of its own for missing cells: 'missing' is for {_TEXT[0]} files")

    @property
    def label(self) -> str:
        """The file's path."""
        return str(self.file)

    @property
    def ending(self) -> str:
        """The ending that says how to read it."""
        for ending in ENDINGS:
            if self.file.name.lower().endswith(ending):
                return ending
        raise InputError(f"{self.file}: tables are read from {', '.join(ENDINGS)} files")

    def read(self, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
        """Read the chosen columns batch by batch, or say in a sentence why not."""
        if not self.file.is_file():
            raise InputError(f"the file {self.file} does not exist")
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise InputError("reading tables needs pandas: install it with 'pip install fedspan[tables]'") from None
        try:
            more = (self.missing,) if self.ending in _TEXT else ()
            return _READERS[self.ending](self.file, self._each_once(choose), keep, apart, *more)
        except InputError:
            raise
        except Exception as error:  # whatever a reader makes of bytes from outside
            reason = _said(error)
        # Here, and not in the handler: so that no reader's error, with rows in its locals, hangs on this one.
        raise InputError(f"{self.file} cannot be read as {self.ending}: {reason}")

    def _each_once(self, choose: Choose) -> Choose:
        """Refuse a name that two columns have before any is chosen."""

        def checked(names: Sequence[str]) -> Sequence[str]:
            for name, times in Counter(names).items():
                if times > 1:
                    raise InputError(f"{self.file} has two columns named {name!r}")
            return choose(names)

        return checked

    def stamp(self) -> object:
        """Return which file it is, its size and when it was written."""
        try:
            found = self.file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def gone(self) -> bool:
        """Tell whether there is no such file any more."""
        return not self.file.is_file()


def _said(error: Exception) -> str:
    """Return what a reader says of a file as a whole; of an error that may be about a value, only what it is called."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    about = (zipfile.BadZipFile, csv.Error, EOFError)
    structure = type(error).__name__ in ("ParserError", "EmptyDataError") or "Parquet" in str(error)[:40]
    if isinstance(error, about) or structure:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return f"{type(error).__name__}, of which no more is said here, since it may name values"


def read_table(file: Path) -> pd.DataFrame:
    """Read a whole file, or say in a sentence why not."""
    return FileSource(file).read(everything, all_of)
