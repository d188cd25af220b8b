"""Parameters of `FedTabularEncoder`, checked, as column numbers and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import dict_of, list_of, one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation.site.parameters import Flags
from fedspan.gateway.cell_text import name
from fedspan.tables.parts.column_kinds import NUMBERS, TEXT, UNKNOWN

#: By column number.
FixedNames = dict[int, tuple[str, ...]]


def check(parameters: Mapping[str, Any]) -> None:
    """Refuse values of parameters that no table makes right."""
    for key in ("max_categories", "min_count"):
        whole_number(key, parameters[key], 1)
    one_of("unknown", parameters["unknown"], ("other", "zero"))
    one_of("missing", parameters["missing"], ("indicator", "mean"))
    real_number("rare", parameters["rare"], least=0, most=0.5, why=", a share of the rows")
    true_or_false("scale", parameters["scale"])
    log, categorical, categories = (parameters[key] for key in ("log", "categorical", "categories"))
    if not (is_auto(log) or isinstance(log, bool | np.bool_) or _is_list(log)):
        raise InputError(f"log={log!r} must be 'auto', True, False or a list of columns")
    if not (is_auto(categorical) or _is_list(categorical)):
        raise InputError(f"categorical={categorical!r} must be 'auto' or a list of columns")
    for column, names in dict_of("categories", categories, "columns and their names").items():
        list_of(f"categories[{column!r}]", names, "names")


def is_auto(value: object) -> bool:
    """Whether a parameter leaves the choice to the data."""
    return isinstance(value, str) and value == "auto"


def fixed_names(categories: Mapping[Any, Iterable[Any]] | None, columns: Sequence[str]) -> FixedNames:
    """Return the names that the parameter `categories` fixes, as cells have them and without repetition."""
    found: FixedNames = {}
    for column, texts in dict_of("categories", categories, "columns and their names").items():
        (position,) = _positions([column], columns, "categories")
        if position in found:
            raise InputError(f"categories={categories!r} names the column {columns[position]!r} twice")
        found[position] = tuple(dict.fromkeys(name(str(text)) for text in texts))
    return found


def known_kinds(categorical: Any, fixed: FixedNames, columns: Sequence[str]) -> NDArray[np.int8]:
    """Return what is known of the columns' kinds before the first request to a site."""
    kinds = np.full(len(columns), UNKNOWN if is_auto(categorical) else NUMBERS, dtype=np.int8)
    if not is_auto(categorical):
        kinds[_positions(categorical, columns, "categorical")] = TEXT
    kinds[list(fixed)] = TEXT
    return kinds


def chosen_logs(log: Any, columns: Sequence[str], text: Flags) -> Flags:
    """Return the columns (d,) that a list `log` names; `text` has no logarithm."""
    chosen = np.zeros(len(columns), dtype=bool)
    chosen[_positions(log, columns, "log")] = True
    if np.any(chosen & text):
        column = columns[int(np.argmax(chosen & text))]
        raise InputError(f"log names the column {column!r}, which is text and has no logarithm")
    return chosen


def refuse_doubles(columns: Sequence[Any]) -> None:
    """Refuse a table in which two columns have one name."""
    if len(set(columns)) < len(columns):
        raise InputError("two columns of the table have the same name: rename one of them")


def _positions(wanted: Iterable[Any], columns: Sequence[str], parameter: str) -> list[int]:
    """Return the numbers of columns that are named, or numbered, in a parameter."""
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


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
