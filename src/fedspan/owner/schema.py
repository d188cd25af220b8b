"""The schema: names and kinds of columns, and how a site's table differs from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: Kinds of columns; numbers from the narrowest to the widest. Each takes missing cells.
KINDS = {
    "boolean": "true and false, or 1 and 0",
    "integer": "whole numbers",
    "number": "numbers, whole or not, and truth values",
    "text": "text",
    "time": "dates and times",
    "duration": "durations",
}
NUMBERS = ("boolean", "integer", "number")


def kind_of(column: pd.Series[Any]) -> str:
    """Return the narrowest kind that holds all cells of a column that are not missing."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biu":
        return "boolean" if kind == "b" else "integer"
    if kind != "f":
        return {"M": "time", "m": "duration"}.get(kind, "text")
    values = column.to_numpy()
    whole = np.isfinite(values) & (np.floor(values) == values)
    return "integer" if bool(np.all(np.isnan(values) | whole)) else "number"


def check_schema(schema: Mapping[str, object]) -> dict[str, str]:
    """Return the kinds of columns by name, in the order of the columns, or refuse an unknown kind."""
    for name, kind in schema.items():
        if kind not in KINDS:
            raise InputError(f"{name} = {kind!r} must be one of {', '.join(map(repr, KINDS))}")
    return {name: str(kind) for name, kind in schema.items()}


def times_of(*schemas: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the columns that one of these schemas declares to be times: text in them is read as times."""
    return tuple(dict.fromkeys(name for schema in schemas for name, kind in (schema or {}).items() if kind == "time"))


def differences(
    schema: Mapping[str, str], frame: pd.DataFrame, features: list[str], called: str = "the schema"
) -> list[str]:
    """Return one sentence for each column in which a table differs from the schema; their order does not matter.

    The schema may also name label, target and task, which are not in `features`.
    """
    found = []
    for name, wanted in schema.items():
        if name not in frame.columns:
            found.append(f"column {name!r} ({wanted}) of {called} is missing")
        elif not _fits(frame[name], wanted):
            found.append(f"column {name!r} holds {kind_of(frame[name])}, and {called} says {wanted}")
    found += [f"column {name!r} is not in {called}" for name in features if name not in schema]
    return found


def _fits(column: pd.Series[Any], wanted: str) -> bool:
    found = kind_of(column)
    if column.isna().all():  # an empty column fits every kind
        return True
    if wanted == "boolean" and found == "integer":
        return bool(np.isin(column.dropna().to_numpy(), (0, 1)).all())
    if wanted in NUMBERS and found in NUMBERS:
        return NUMBERS.index(found) <= NUMBERS.index(wanted)
    return found == wanted
