"""What all sources of tables have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

#: Told the names of all columns, returns those to read, or refuses.
Choose = Callable[[Sequence[str]], Sequence[str]]
#: Returns what is to be kept of a batch: rows of it, and columns.
Keep = Callable[["pd.DataFrame"], "pd.DataFrame"]

#: Tables are read in batches of about so many cells.
BATCH_CELLS = 2**21
_FEWEST_ROWS, _MOST_ROWS = 512, 2**16


class Source(Protocol):
    """Where one table is."""

    @property
    def label(self) -> str:
        """What sentences call it. Holds no secret."""

    def read(self, choose: Choose, keep: Keep, apart: Collection[str] = ()) -> pd.DataFrame:
        """Read the chosen columns batch by batch, and return what is kept of them.

        The columns `apart` are stored apart from the others, in the type that they have.
        """

    def stamp(self) -> object:
        """Return what is the same as long as the table surely is, or ``None`` where nobody can tell."""

    def gone(self) -> bool:
        """Tell whether the table is surely no longer there, without reading it."""


def everything(names: Sequence[str]) -> Sequence[str]:
    """Choose all columns."""
    return names


def all_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep a batch as it is."""
    return frame


def batch_rows(columns: int) -> int:
    """Return how many rows of so many columns make a batch."""
    return min(_MOST_ROWS, max(_FEWEST_ROWS, BATCH_CELLS // max(1, columns)))
