"""What the parameters of `FedTabularEncoder` say about columns, checked, in terms of column numbers and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.tables.parts.cell_text import name
from fedspan.tables.parts.column_kinds import NUMBERS, TEXT, UNKNOWN

#: By column number.
FixedNames = dict[int, tuple[str, ...]]


def check(parameters: Mapping[str, Any]) -> None:
    """Refuse values of parameters that no table makes right."""
    for key in ("max_categories", "min_count"):
        whole_number(key, parameters[key], 1)
    for key, allowed in {"unknown": ("other", "zero"), "missing": ("indicator", "mean")}.items():
        one_of(key, parameters[key], allowed)
    real_number("rare", parameters["rare"], least=0, most=0.5, why=", a share of the rows")
    true_or_false("scale", parameters["scale"])
    log, categorical, categories = (parameters[key] for key in ("log", "categorical", "categories"))
    if not (log_is_rule(log) or _is_list(log)):
        raise InputError(f"log={log!r} must be 'auto', True, False or a list of columns")
    if not (_is_auto(categorical) or _is_list(categorical)):
        raise InputError(f"categorical={categorical!r} must be 'auto' or a list of columns")
    if categories is not None and not (isinstance(categories, Mapping) and all(map(_is_list, categories.values()))):
        raise InputError(f"categories={categories!r} must be None or a dict of a column to a list of its names")


def log_is_rule(log: object) -> bool:
    """Whether `log` is no list of columns."""
    return _is_auto(log) or isinstance(log, bool | np.bool_)


def fixed_names(categories: Mapping[Any, Iterable[Any]] | None, columns: Sequence[str]) -> FixedNames:
    """Return the names that the parameter `categories` fixes, as cells have them and without repetition."""
    found: FixedNames = {}
    for column, texts in (categories or {}).items():
        position = positions([column], columns, "categories")[0]
        if position in found:
            raise InputError(f"categories={categories!r} names the column {columns[position]!r} twice")
        found[position] = tuple(dict.fromkeys(name(str(text)) for text in texts))
    return found


def known_kinds(categorical: Any, fixed: FixedNames, columns: Sequence[str]) -> NDArray[np.int8]:
    """Return what is known of the columns' kinds before the sites are asked."""
    kinds = np.full(len(columns), UNKNOWN if _is_auto(categorical) else NUMBERS, dtype=np.int8)
    if not _is_auto(categorical):
        kinds[positions(categorical, columns, "categorical")] = TEXT
    kinds[list(fixed)] = TEXT
    return kinds


def positions(wanted: Iterable[Any], columns: Sequence[str], parameter: str) -> list[int]:
    """Return the numbers of columns that are given by name or number."""
    found = []
    for column in wanted:
        if isinstance(column, str) and column in columns:
            found.append(columns.index(column))
        elif isinstance(column, int | np.integer) and not isinstance(column, bool) and 0 <= column < len(columns):
            found.append(int(column))
        else:
            some = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
            raise InputError(
                f"{parameter} names the column {column!r}, and the table has {len(columns)} columns: {some}"
            )
    return found


def chosen_logs(log: Any, columns: Sequence[str], text: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which columns (d,) a list `log` names; `text` has no logarithm."""
    chosen = np.zeros(len(columns), dtype=bool)
    chosen[positions(log, columns, "log")] = True
    if np.any(chosen & text):
        column = columns[int(np.argmax(chosen & text))]
        raise InputError(f"log names the column {column!r}, which is text and has no logarithm")
    return chosen


def refuse_doubles(columns: Sequence[Any]) -> None:
    """Refuse a table in which a name does not tell the column."""
    if len(set(columns)) < len(columns):
        raise InputError("two columns of the table have the same name: rename one of them")


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
