"""Rows that are not in memory: a site reads them block by block, once for every pass."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RowStream(ABC):
    """A table that is read in blocks, in the same order every time (see `fedspan.stream`).

    Attributes
    ----------
    label : str
        What messages call it.
    shape : (n, d)
    feature_names : tuple of str or None
    text : bool
        Whether some columns hold text: blocks are then of objects.
    """

    label: str
    shape: tuple[int, int]
    feature_names: tuple[str, ...] | None
    text: bool = False

    @abstractmethod
    def batches(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in blocks of at most this number, in their order."""

    @abstractmethod
    def in_order(self, names: Sequence[str]) -> RowStream:
        """Return the stream with its columns in the order of `names`, which are its own."""

    @abstractmethod
    def stamp(self) -> str:
        """Return what identifies the data, so that a journal recognises them."""

    def column(self, name: str) -> tuple[RowStream, NDArray[Any]]:
        """Return the stream without one of its columns, and the values of that column."""
        raise NotImplementedError


class HeldRows:
    """A few numbers for each row of a table in memory, such as scores."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows

    def rows(self, start: int, count: int) -> NDArray[Any]:
        """Return `count` rows from `start` on."""
        return self._rows[start : start + count]


class SpooledRows:
    """A few numbers for each row of a stream, such as scores, in a temporary file that has no name.

    Passes over them read the file instead of the stream. It is in the folder for temporary files (``TMPDIR``), only
    this process can open it, and it ends with the process at the latest.
    """

    def __init__(self, dtype: np.dtype[Any], columns: int) -> None:
        self._dtype, self._columns = dtype, columns
        self._file = tempfile.TemporaryFile(prefix="fedspan-", buffering=0)  # noqa: SIM115

    def append(self, rows: NDArray[Any]) -> None:
        """Append rows (n, columns)."""
        left = memoryview(np.ascontiguousarray(rows, dtype=self._dtype).tobytes())
        while left:
            left = left[self._file.write(left) :]

    def rows(self, start: int, count: int) -> NDArray[Any]:
        """Return `count` rows from `start` on."""
        size = self._dtype.itemsize * self._columns
        found = os.pread(self._file.fileno(), count * size, start * size)
        return np.frombuffer(found, dtype=self._dtype).reshape(-1, self._columns)
