"""Names of tasks: whole numbers or text. Two names are the same task when they read the same: 3 and "3" are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

Labels = NDArray[Any]
Positions = NDArray[np.intp]

#: Characters that the name of a task may have.
LONGEST_NAME = 200


def task_labels(values: Any, name: str) -> Labels:
    """Return labels of tasks, one for each row, as whole numbers (int64) or as text; what is missing is refused.

    Examples
    --------
    >>> task_labels([2.0, 1.0], "task"), task_labels(np.array(["a", 3], dtype=object), "task")
    (array([2, 1]), array(['a', '3'], dtype='<U1'))
    """
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise InputError(f"{name} has the shape {labels.shape}, and must have one label for each row")
    if labels.dtype == object:
        if any(_is_missing(label) for label in labels.tolist()):
            raise InputError(f"{name} has missing values: every row must belong to a task")
        if all(isinstance(label, int | np.integer) for label in labels.tolist()):
            if any(not -(2**63) <= label < 2**63 for label in labels.tolist()):
                raise InputError(f"{name} has labels beyond 64 bits: rename them")
            labels = labels.astype(np.int64)
        else:
            labels = labels.astype(str)
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise InputError(f"{name} has NaN or infinity among its labels: every row must belong to a task")
        whole = (labels == np.round(labels)).all() and (np.abs(labels) < 2.0**53).all()
        labels = labels.astype(np.int64) if whole else labels.astype(str)
    if labels.dtype.kind in "biu":
        if labels.size and int(labels.max()) > np.iinfo(np.int64).max:
            raise InputError(f"{name} has labels beyond 64 bits: rename them")
        return labels.astype(np.int64)
    if labels.dtype.kind != "U":
        raise InputError(f"{name} has labels of type {labels.dtype}, and must have whole numbers or text")
    if labels.dtype.itemsize > 4 * LONGEST_NAME and np.char.str_len(labels).max(initial=0) > LONGEST_NAME:
        raise InputError(f"{name} has labels of more than {LONGEST_NAME} characters: rename them")
    return labels


def told_labels(value: Any) -> Labels:
    """Return the different names of tasks that a site tells, at least one, or refuse them."""
    try:
        labels = task_labels(value, "the list of its tasks") if np.ndim(value) == 1 else np.zeros(0, dtype=np.int64)
    except (InputError, ValueError, OverflowError):
        labels = np.zeros(0, dtype=np.int64)
    if not labels.size or np.asarray(value).dtype.kind not in "iuU" or len(np.unique(labels)) != len(labels):
        raise InputError(
            "the names of a site's tasks must be different whole numbers or texts, at least one, of at most "
            f"{LONGEST_NAME} characters"
        )
    return labels


def merged_labels(own: Mapping[str, Labels], outvoted: bool) -> tuple[Labels, dict[str, Positions]]:
    """Return all sites' labels, sorted, and where those of each site stand among them.

    Whole numbers where most sites have such and the text of the others reads like such, otherwise text. Where sites can
    be `outvoted` the majority decides alone: a site whose text is no number then has no place.
    """
    numbers = {site: _as_numbers(labels) for site, labels in own.items()}
    plain = sum(labels.dtype.kind != "U" for labels in own.values())
    if 2 * plain > len(own) and (outvoted or all(labels is not None for labels in numbers.values())):
        own = {site: labels for site, labels in numbers.items() if labels is not None}
    else:
        own = {site: labels.astype(str) for site, labels in own.items()}
    common = np.unique(np.concatenate(list(own.values())))
    return common, {site: np.searchsorted(common, labels) for site, labels in own.items()}


def positions(own: Labels, common: Labels) -> tuple[Positions, NDArray[np.bool_]]:
    """Return where labels stand among the sorted `common` ones, and which of them are there at all.

    Examples
    --------
    >>> positions(np.array(["3", "x", "03"]), np.array([2, 3, 10]))[1]
    array([ True, False, False])
    """
    if not len(common):
        return np.zeros(len(own), dtype=np.intp), np.zeros(len(own), dtype=bool)
    if own.dtype.kind != common.dtype.kind:
        if common.dtype.kind == "U":
            own = own.astype(str)
        else:
            return _text_among_numbers(own, common)
    at = np.minimum(np.searchsorted(common, own), len(common) - 1)
    return at, common[at] == own


def _text_among_numbers(own: Labels, common: Labels) -> tuple[Positions, NDArray[np.bool_]]:
    text = common.astype(str)
    order = np.argsort(text)
    at = order[np.minimum(np.searchsorted(text[order], own), len(common) - 1)]
    return at, text[at] == own


def _as_numbers(labels: Labels) -> Labels | None:
    """Return labels as whole numbers, if they read the same."""
    if labels.dtype.kind != "U":
        return labels
    try:
        numbers = labels.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers if (numbers.astype(str) == labels).all() else None


def _is_missing(label: object) -> bool:
    nan = isinstance(label, float | np.floating) and bool(np.isnan(label))
    return label is None or nan or type(label).__name__ in ("NAType", "NaTType")
