"""The row filter's comparisons: of columns with values and with each other, if they are of one kind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.bool_]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Column:
    """A column, by its name."""

    name: str

    def of(self, frame: pd.DataFrame) -> Any:
        """Return the column; categories as what they stand for."""
        column = frame[self.name]
        if not hasattr(column, "cat"):
            return column
        kind = column.cat.categories.dtype
        return column.astype(np.float64 if kind.kind in "iub" else kind)


@dataclass(frozen=True)
class Value:
    """A number, a text or a truth value."""

    value: Any

    def of(self, frame: pd.DataFrame) -> Any:
        """Return the value."""
        return self.value


Operand = Column | Value


def compare(sign: str, left: Operand, right: Operand, frame: pd.DataFrame) -> Rows:
    """Return for which rows (n,) a comparison holds, or refuse one of things that cannot be compared."""
    sides = [left.of(frame), right.of(frame)]
    kinds = [_kind(side) for side in sides]
    if "nothing" in kinds:  # a column without any value
        return np.full(len(frame), sign == "!=")
    if sorted(kinds) == ["text", "time"]:
        sides = [_as_time(side) if kind == "text" else side for side, kind in zip(sides, kinds, strict=True)]
    elif kinds[0] != kinds[1]:
        first, second = (
            f"column {side.name!r}, which holds {kind}s" if isinstance(side, Column) else f"the {kind} {side.value!r}"
            for side, kind in zip((left, right), kinds, strict=True)
        )
        raise InputError(f"the row filter compares {first}, with {second}")
    return np.asarray(COMPARISONS[sign](*sides), dtype=bool)


def _kind(side: Any) -> str:
    dtype = getattr(side, "dtype", None)
    if dtype is None:
        return "text" if isinstance(side, str) else "number"
    if dtype.kind in "buif":
        return "nothing" if dtype.kind == "f" and side.isna().all() else "number"
    return {"M": "time", "m": "duration"}.get(dtype.kind, "text")


def _as_time(text: Any) -> Any:
    import pandas as pd

    if not isinstance(text, str):
        raise InputError(f"the row filter compares a column of text, {text.name!r}, with one of times")
    try:
        return pd.Timestamp(text)
    except ValueError:
        raise InputError(f"the row filter compares times with {text!r}, which is none, such as '2026-01-31'") from None
