"""Rows that are not in memory: a site reads them block by block, once for every pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

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
