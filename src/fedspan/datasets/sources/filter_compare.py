"""The row filter's comparisons: of columns with values and with each other, if they are of one kind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.datasets.sources.iso_times import EXAMPLES, looks_like_time, time_of, times_of
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
    """Return for which rows (n,) a comparison holds, or refuse one of things that cannot be compared.

    Text is compared as times if one side is a date that the filter names, and the column must be written like it:
    letter by letter, 10/1/2026 comes before 2026-01-31.
    """
    sides = [left.of(frame), right.of(frame)]
    kinds = [_kind(side) for side in sides]
    if "nothing" in kinds:  # a column without any value
        return np.full(len(frame), sign == "!=")
    dated = any(isinstance(side, Value) and looks_like_time(side.value) for side in (left, right))
    if sorted(kinds) == ["text", "time"] or (kinds == ["text", "text"] and dated):
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
    if isinstance(text, str):
        time = time_of(text)
        if time is None:
            raise InputError(f"the row filter compares times with {text!r}, which is none: write it as {EXAMPLES}")
        return time
    times = times_of(text.astype("str"))
    if times is None:
        raise InputError(
            f"the row filter compares column {text.name!r} with times, and some of its cells are not written like "
            f"one: write them as {EXAMPLES}"
        )
    return times
