"""The federation's schema: names and kinds of columns, and in what a site's table differs from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: From the narrowest to the widest, as far as they are numbers. Each takes missing cells.
KINDS = {
    "boolean": "true and false, or 1 and 0",
    "integer": "whole numbers",
    "number": "numbers, whole or not, and truth values",
    "text": "text",
    "time": "dates and times",
    "duration": "durations",
}
_NUMBERS = ("boolean", "integer", "number")


def kind_of(column: pd.Series[Any]) -> str:
    """Return the narrowest kind that holds all cells of a column that are there; numbers if none is."""
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "buif":
        return {"M": "time", "m": "duration"}.get(kind, "text")
    if kind == "b":
        return "boolean"
    if kind in "iu":
        return "integer"
    values = column.to_numpy()
    whole = np.isfinite(values) & (np.floor(values) == values)
    return "integer" if bool(np.all(np.isnan(values) | whole)) else "number"


def check_schema(schema: Mapping[str, object]) -> dict[str, str]:
    """Return the kinds of columns by name, in the order of the columns, or refuse one that is none."""
    for name, kind in schema.items():
        if kind not in KINDS:
            raise InputError(f"{name} = {kind!r} must be one of {', '.join(map(repr, KINDS))}")
    return {name: str(kind) for name, kind in schema.items()}


def times_of(*schemas: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the columns that some of these schemas call times: where they are text, they are read as such."""
    return tuple(dict.fromkeys(name for schema in schemas for name, kind in (schema or {}).items() if kind == "time"))


def differences(
    schema: Mapping[str, str], frame: pd.DataFrame, features: list[str], called: str = "the schema"
) -> list[str]:
    """Return one sentence for each column in which a table differs from the schema, and one if their order does.

    The schema may, but need not, name columns beside `features`: the label and the task.
    """
    said = []
    for name, wanted in schema.items():
        if name not in frame.columns:
            said.append(f"column {name!r} ({wanted}) of {called} is missing")
        elif not _fits(frame[name], wanted):
            said.append(f"column {name!r} holds {kind_of(frame[name])}, and {called} says {wanted}")
    said += [f"column {name!r} is not in {called}" for name in features if name not in schema]
    order = [name for name in schema if name in features]
    if not said and order != features:
        place = next(k for k, (one, other) in enumerate(zip(order, features, strict=True)) if one != other)
        said.append(f"column {place + 1} is {features[place]!r}, and in {called} {order[place]!r}: the order differs")
    return said


def _fits(column: pd.Series[Any], wanted: str) -> bool:
    found = kind_of(column)
    if column.isna().all():  # of nothing, everything is true
        return True
    if wanted == "boolean" and found == "integer":
        return bool(np.isin(column.dropna().to_numpy(), (0, 1)).all())
    if wanted in _NUMBERS and found in _NUMBERS:
        return _NUMBERS.index(found) <= _NUMBERS.index(wanted)
    return found == wanted
