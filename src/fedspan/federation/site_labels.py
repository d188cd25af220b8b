"""Labels that name the site of each row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

from fedspan.errors import InputError


def site_rows(labels: Any, rows: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Return the row numbers of each site, by name, in name order."""
    array = _label_array(labels)
    if array.shape != (rows,):
        raise InputError(f"sites has the shape {array.shape}, and must have one label for each of the {rows} rows")
    if rows == 0:
        raise InputError("a federation needs at least one row, and X has none")
    kind = array.dtype.kind
    if (kind == "f" and np.isnan(array).any()) or (kind == "M" and np.isnat(array).any()):
        raise InputError("sites has NaN or a missing date among its labels: every row must belong to a site")
    if kind == "O":
        if set(map(type, array)) != {str}:
            _check_objects(array)
        array = array.astype(str)
    distinct, codes = np.unique(array, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(distinct) + 1))
    named = {str(label): order[bounds[i] : bounds[i + 1]] for i, label in enumerate(distinct)}
    if "" in named:
        raise InputError("sites has an empty label: every row must belong to a site with a name")
    return {name: named[name] for name in sorted(named)}


def _label_array(labels: Any) -> np.ndarray[Any, Any]:
    """Return labels as an array of their own types: numpy would make text of a list of numbers and text."""
    if isinstance(labels, np.ma.MaskedArray):
        if np.ma.getmaskarray(labels).any():
            raise InputError("sites has masked values among its labels: every row must belong to a site")
        return np.asarray(labels.data)
    if isinstance(labels, np.ndarray):
        return labels
    if hasattr(labels, "iloc") or hasattr(labels, "array"):  # of pandas
        plain: np.ndarray[Any, Any] = np.asarray(labels.to_numpy())
        return plain if plain.dtype.kind in "biufUM" else np.asarray(labels.to_numpy(dtype=object))
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        shown = f"sites={labels!r}" if isinstance(labels, str | bytes | int) else f"sites is a {type(labels).__name__}"
        raise InputError(
            f"{shown}, and must be a list or an array with the label of each row, in the order of the rows "
            "(a column's name, or a dict of tables, goes to fedspan.federate)"
        )
    as_list = getattr(labels, "to_pylist", None) or getattr(labels, "to_list", None)  # of pyarrow, of polars
    values = list(labels) if as_list is None else as_list()
    array = np.empty(len(values), dtype=object)
    for row, label in enumerate(values):
        array[row] = label
    return array


def _check_objects(labels: np.ndarray[Any, Any]) -> None:
    """Refuse missing labels, and two labels that have one name."""
    by_name: dict[str, Any] = {}
    for label in labels:
        if isinstance(label, Iterable) and not isinstance(label, str | bytes):
            raise InputError(
                f"sites has a label of the type {type(label).__name__}: a label is one number, text or date for each "
                "row; join several into one text first"
            )
        is_nan = isinstance(label, float | np.floating) and math.isnan(label)
        if label is None or is_nan or type(label).__name__ in ("NAType", "NaTType"):
            raise InputError("sites has a missing value among its labels: every row must belong to a site")
        first = by_name.setdefault(str(label), label)
        if first is not label and (isinstance(first, str) != isinstance(label, str) or first != label):
            raise InputError(
                f"the labels {first!r} and {label!r} both name the site {str(label)!r}: rename one of them"
            )
