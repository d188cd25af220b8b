"""The data folder, and reading its files so that a missing or damaged one gets a clear sentence.

Nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

import csv
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedspan.datasets.bunch import Source
from fedspan.errors import DataMissingError, InputError

# All that zipfile, gzip, csv and numpy raise on bytes that are not what they should be.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,
    MemoryError,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
)


def data_folder() -> Path:
    """Return the folder that the loaders read from.

    Returns
    -------
    Path
        ``$FEDSPAN_DATA`` where that is set, else ``fedspan`` in the user's cache
        (``$XDG_CACHE_HOME`` or ``~/.cache``). It need not exist.

    Examples
    --------
    >>> isinstance(data_folder(), Path)
    True
    """
    chosen = os.environ.get("FEDSPAN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedspan"


def find_file(name: str, source: Source) -> Path:
    """Return the path of a file in the data folder, or raise an error that names its source."""
    path = data_folder() / name
    if not path.is_file():
        raise DataMissingError(
            f"The file {name} of {source.name} is not in the folder {path.parent}: get the data set from "
            f"{source.where} and put the file there, or set FEDSPAN_DATA to the folder that holds it."
        )
    return path


def damaged(path: Path, source: Source, reason: str) -> InputError:
    """Make the error for a file that is there but cannot be used."""
    return InputError(
        f"The file {path.name} in the folder {path.parent} cannot be used as {source.name} because {reason}: "
        f"get the data set again from {source.where}."
    )


@contextmanager
def reading(path: Path, source: Source) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one clear sentence."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        raise damaged(path, source, f"reading it fails with {type(error).__name__}") from error


def read_npz(path: Path, source: Source, members: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[Any]]:
    """Read named arrays, each with the expected kind and number of values.

    Parameters
    ----------
    path : Path
        The ``.npz`` file.
    source : Source
        For the sentence if something is wrong.
    members : mapping of name to (kind, shape)
        ``kind`` is numpy's (``"u"``, ``"f"``, ``"U"``). An array with the same number of rows and values but
        another shape (images instead of rows) is reshaped.

    Returns
    -------
    dict of str to array
    """
    arrays = {}
    with reading(path, source):
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise damaged(path, source, "it is a single array, not an archive of named arrays")
        with archive:
            for name, (kind, shape) in members.items():
                if name not in archive:
                    raise damaged(path, source, f"it lacks the array {name}")
                array = archive[name]
                if array.dtype.kind != kind or array.shape[:1] != shape[:1] or array.size != prod(shape):
                    raise damaged(
                        path,
                        source,
                        f"its array {name} is {array.dtype} of shape {array.shape} instead of "
                        f"kind '{kind}' and shape {shape}",
                    )
                arrays[name] = array.reshape(shape)
    return arrays


def read_numbers(path: Path, source: Source, columns: Sequence[str]) -> NDArray[np.float64]:
    """Read numeric columns of a gzipped CSV file with a header.

    Returns
    -------
    array of shape (n, len(columns))
        In the order of ``columns``.
    """
    with reading(path, source), _open_csv(path) as file:
        wanted = _positions(next(csv.reader(file), []), columns, path, source)
        first = file.readline()
        if not first:  # loadtxt would only warn
            return np.empty((0, len(columns)))
        lines = chain([first], file)
        return np.loadtxt(lines, delimiter=",", usecols=wanted, comments=None, quotechar='"', ndmin=2)


def read_text(path: Path, source: Source, columns: Sequence[str]) -> dict[str, NDArray[np.str_]]:
    """Read columns of a gzipped CSV file as text, cell by cell as they stand there.

    Returns
    -------
    dict of str to array of shape (n,)
    """
    with reading(path, source), _open_csv(path) as file:
        rows = csv.reader(file)
        wanted = _positions(next(rows, []), columns, path, source)
        cells = [[row[i] for i in wanted] for row in rows if row]
        table = zip(*cells, strict=True) if cells else [()] * len(columns)
        return {name: np.array(column, dtype=str) for name, column in zip(columns, table, strict=True)}


def check_rows(found: int, expected: int, path: Path, source: Source, hint: str = "") -> None:
    """Refuse a table with another number of rows: it is cut off, or another release."""
    if found != expected:
        raise damaged(path, source, f"it holds {found:,} rows instead of {expected:,}{hint}")


def read_idx(path: Path, source: Source, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read a gzipped idx file of bytes: 0, 0, type 8, the number of axes, their lengths, then the values."""
    with reading(path, source), gzip.open(path) as file:
        content = file.read()
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes()
    if not content.startswith(header) or len(content) != len(header) + prod(shape):
        raise damaged(path, source, f"it is not an idx file of bytes of shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape).copy()


def _open_csv(path: Path) -> TextIO:
    # Some publishers' files start with a byte-order mark, which would otherwise stick to the first name.
    return gzip.open(path, "rt", encoding="utf-8-sig", newline="")


def _positions(header: list[str], columns: Sequence[str], path: Path, source: Source) -> list[int]:
    missing = [name for name in columns if name not in header]
    if missing:
        raise damaged(path, source, f"it lacks the columns {', '.join(missing)}")
    return [header.index(name) for name in columns]
