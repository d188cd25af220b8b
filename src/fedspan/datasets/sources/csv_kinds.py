"""What the columns of a CSV file hold, settled by all of their cells before one of them is used.

A column is made of truth values, whole numbers or numbers if every cell that is not missing is; otherwise it is text.
In columns of numbers and truth values, the usual words for a missing cell (``NA``, ``null``, ...) mean one. Elsewhere
they are text like any other, and only an empty field is missing: ``None`` may be the answer to a question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

#: What a missing number is written as.
MISSING_WORDS = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
_NUMBER = r"[ \t]*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf(?:inity)?))[ \t]*"
_WHOLE, _ANY, _TRUTH, _TEXT = "whole numbers", "numbers", "truth values", "text"


class CsvColumn:
    """What is known of one column after some batches, in which the words `missing` are missing cells."""

    def __init__(self, missing: Collection[str]) -> None:
        self._missing = list(missing)
        self._found: set[str] = set()
        self.gaps = False

    def see(self, batch: pd.Series[Any]) -> None:
        """Look at one more batch."""
        there = batch.dropna()
        if getattr(there.dtype, "kind", "O") == "O":  # a reader that meets too many digits forgets about such words
            there = there[~there.isin(self._missing)]
        self.gaps |= len(there) < len(batch)
        if len(there):
            self._found.add(_kind(there))

    @property
    def holds(self) -> str:
        """What all cells are."""
        if self._found <= {_WHOLE, _ANY}:
            return _WHOLE if self._found == {_WHOLE} and not self.gaps else _ANY
        return _TRUTH if self._found == {_TRUTH} else _TEXT

    @property
    def is_text(self) -> bool:
        """Whether it is text."""
        return self.holds == _TEXT

    @property
    def dtype(self) -> Any:
        """The type to read it as, whatever is in a batch of it."""
        return {_WHOLE: np.int64, _ANY: np.float64, _TRUTH: "str", _TEXT: "str"}[self.holds]

    def plain(self, batch: pd.Series[Any]) -> pd.Series[Any]:
        """Return a batch, read as `dtype`, as plain numbers or text."""
        import pandas as pd

        if self.holds != _TRUTH:
            return batch
        true = (batch.str.lower() == "true").to_numpy(bool)  # in any case, as the reader takes them
        return pd.Series(np.where(batch.isna(), np.nan, true) if self.gaps else true, batch.index)


def settled(batches: Iterable[pd.DataFrame], names: Iterable[str], missing: Collection[str]) -> dict[str, CsvColumn]:
    """Return what the columns of these names hold over all batches."""
    columns = {name: CsvColumn(missing) for name in names}
    for batch in batches:
        for name, column in columns.items():
            column.see(batch[name])
    return columns


def _kind(cells: pd.Series[Any]) -> str:
    import pandas as pd

    kind = getattr(cells.dtype, "kind", "O")
    if kind == "b" or (kind == "O" and pd.api.types.infer_dtype(cells) == "boolean"):
        return _TRUTH
    if kind == "i":
        return _WHOLE
    if kind in "uf":
        return _ANY
    # Too many digits make a reader give up on numbers altogether.
    return _ANY if bool(cells.astype("str").str.fullmatch(_NUMBER).all()) else _TEXT
