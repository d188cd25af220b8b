"""Tables in files: CSV, Parquet and NPZ, told by the ending of the name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedspan.datasets.tables.csv_file import read_csv
from fedspan.datasets.tables.npz_file import read_npz
from fedspan.datasets.tables.parquet_file import read_parquet
from fedspan.datasets.tables.source import Choose, Keep, all_of, everything
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_READERS: dict[str, Callable[[Path, Choose, Keep, Collection[str]], pd.DataFrame]] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}
ENDINGS = tuple(_READERS)


@dataclass(frozen=True)
class FileSource:
    """One table in one file."""

    file: Path

    def __post_init__(self) -> None:
        _ = self.ending

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
            return _READERS[self.ending](self.file, self._each_once(choose), keep, apart)
        except InputError:
            raise
        except Exception as error:  # whatever a reader makes of bytes from outside
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{self.file} cannot be read as {self.ending}: {reason}") from None

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


def read_table(file: Path) -> pd.DataFrame:
    """Read a whole file, or say in a sentence why not."""
    return FileSource(file).read(everything, all_of)
