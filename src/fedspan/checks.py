"""Checks of parameters: each refuses with the name, the value and what is allowed."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedspan.errors import InputError, MissingPackageError

#: The most lists and objects in JSON from outside.
MOST_BRACKETS = 2**20
_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d)")


def whole_number(name: str, value: object, least: int, most: int | None = None, *, why: str = "") -> int:
    """Return a whole number between `least` and `most` as a Python int, or refuse it.

    Examples
    --------
    >>> whole_number("f", -1, 0)
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: f=-1 must be a whole number of at least 0
    """
    whole = int(value) if not isinstance(value, bool) and isinstance(value, Integral) else None
    if whole is None or whole < least or (most is not None and whole > most):
        bounds = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise InputError(f"{name}={value!r} must be a whole number {bounds}{why}")
    return whole


def real_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    why: str = "",
) -> float:
    """Return a finite number within bounds as a Python float, or refuse it.

    Examples
    --------
    >>> real_number("level", 0, above=0, most=1, why=", such as 0.95")
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: level=0 must be a finite number above 0 and at most 1, such as 0.95
    """
    found = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):
        with suppress(OverflowError):
            found = float(value)
    if not (math.isfinite(found) and above < found < below and least <= found <= most):
        bounds = {"above": above, "of at least": least, "below": below, "at most": most}
        limits = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
        raise InputError(f"{name}={value!r} must be a finite number{' ' * bool(limits)}{' and '.join(limits)}{why}")
    return found


def duration(name: str, value: object) -> float:
    """Return a duration in seconds: a text such as ``"90s"``, ``"15min"``, ``"6h"`` or ``"2d"``, or a `timedelta`.

    Examples
    --------
    >>> duration("every", "1.5h"), duration("every", "2d")
    (5400.0, 172800.0)
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else math.nan
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{name}={value!r} must be a duration above 0, such as '90s', '15min', '6h' or '2d'")
    return seconds


def one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of a few words.

    Examples
    --------
    >>> one_of("order", 3, ("first", "last"))
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: order=3 must be one of 'first', 'last'
    """
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")


def true_or_false(name: str, value: object) -> bool:
    """Return a truth value as a Python bool, or refuse it: "no" would otherwise count as True.

    Examples
    --------
    >>> true_or_false("scale", "no")
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: scale='no' must be True or False
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}={value!r} must be True or False")
    return bool(value)


def list_of(name: str, value: object, what: str) -> list[Any]:
    """Return several things as a list, or refuse what is none: a text would count as a list of its letters.

    Examples
    --------
    >>> list_of("covariates", "age", "columns")
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: covariates='age' must be a list of columns
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise InputError(f"{name}={value!r} must be a list of {what}")
    return list(value)


def dict_of(name: str, value: object, what: str, allowed: Iterable[str] | None = None) -> dict[Any, Any]:
    """Return a dict, empty for ``None``, or refuse what is none, or has other keys than the `allowed` ones.

    Examples
    --------
    >>> dict_of("solver_options", {"rounds": 3}, "settings", ["max_rounds", "tol"])
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: solver_options has 'rounds', and may have max_rounds, tol
    """
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name}={value!r} must be a dict of {what}, or None")
    known = list(value or () if allowed is None else allowed)
    for key in value or ():
        if key not in known:
            raise InputError(f"{name} has {key!r}, and may have {', '.join(known)}")
    return {} if value is None else dict(value)


def printable(text: str) -> str:
    r"""Return text with control characters escaped, but for ends of lines.

    Names and reasons come from other sites: a terminal would take some of them for commands.

    >>> printable("north\x1b[2J")
    'north\\x1b[2J'
    """
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode() for sign in text
    )


def json_value(text: str | bytes | bytearray, most_bytes: int = 2**20) -> Any:
    """Return the value of JSON from outside. Every fault is a `ValueError`: no JSON, too deep, too long, many lists.

    A list takes up to thirty times the memory of its text: `most_bytes` and `MOST_BRACKETS` bound that.

    Examples
    --------
    >>> json_value('{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    if len(text) > most_bytes:
        raise ValueError(f"JSON of more than {most_bytes} bytes")
    if len(text) > MOST_BRACKETS:
        signs: tuple[Any, ...] = ("[", "{") if isinstance(text, str) else (b"[", b"{")
        if sum(map(text.count, signs)) > MOST_BRACKETS:
            raise ValueError(f"JSON of more than {MOST_BRACKETS} lists")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON with too many brackets inside one another") from None


@contextmanager
def damage_refused(what: str) -> Iterator[None]:
    """Refuse lines from outside that are not `what` they should be, whichever error reading them raises."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise InputError(f"this is not a {what}, or it is damaged ({type(error).__name__})") from None


def needs_pandas(what: str = "to_frame()") -> None:
    """Refuse what needs pandas where it is not installed."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingPackageError(f"{what} needs pandas: pip install '.[tables]' in a checkout") from None


def frames_inside() -> int:
    """Return the `stacklevel` with which a warning names the line that called fedspan."""
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] == "fedspan" and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def held(what: str, values: Any) -> Any:
    """Return values with masked cells as missing ones, or as they are; refuse a table that holds no rows yet.

    Examples
    --------
    >>> held("X", np.ma.masked_array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    if hasattr(values, "collect") and hasattr(values, "collect_schema"):
        kind = f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}"
        raise InputError(f"{what} is a {kind}, which holds no rows yet: use {what}.collect()")
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.getmaskarray(values).any():
        return values.data
    if values.dtype.kind not in "buifcOUS":
        raise InputError(f"{what} has masked cells of the type {values.dtype}: drop their rows, or fill them first")
    if values.dtype.kind in "OUS":
        text = values.data.astype(object)
        text[np.ma.getmaskarray(values)] = None
        return text
    return np.ma.filled(values.astype(np.float64) if values.dtype.kind in "bui" else values, np.nan)


def as_table(X: Any) -> Any:
    """Return `held` rows, or refuse what is not a table of real numbers; scikit-learn's errors would show cells.

    Examples
    --------
    >>> as_table([1.0, 2.0])
    Traceback (most recent call last):
        ...
    fedspan.errors.InputError: X has 1 dimension, and must be a table of rows and columns. Reshape your data: \
numpy.reshape(X, (-1, 1)) is one column, numpy.reshape(X, (1, -1)) is one row
    """
    X = held("X", X)
    if isinstance(X, str | bytes) or X is None:
        raise InputError(f"X is of the type {type(X).__name__}, and must be a table of rows and columns")
    table = X
    if not hasattr(X, "columns") and not hasattr(X, "ndim"):
        with suppress(ValueError):
            table = np.asarray(X)
    dimensions = getattr(table, "ndim", 2)
    if dimensions < 2:
        raise InputError(
            f"X has {dimensions} dimension{'s' * (dimensions != 1)}, and must be a table of rows and columns. Reshape "
            "your data: numpy.reshape(X, (-1, 1)) is one column, numpy.reshape(X, (1, -1)) is one row"
        )
    dtypes = table.dtypes if hasattr(table, "iloc") else [getattr(table, "dtype", None)]
    if any(getattr(dtype, "kind", "") == "c" for dtype in dtypes):
        raise InputError(
            "X holds complex numbers. Complex data not supported: give real and imaginary parts as columns of their own"
        )
    if hasattr(table, "iloc"):
        names = table.columns
        if not len(names):
            raise InputError("X has no columns: name some to learn from")
        if not names.is_unique:
            raise InputError(f"X has two columns named {str(names[names.duplicated()][0])!r}: rename one of them")
    return X


def time_columns(X: Any) -> list[str]:
    """Return the columns of a data frame that hold times, durations or intervals."""
    if not hasattr(X, "iloc"):
        return []
    kinds = ("datetime", "timedelta", "period", "interval")
    return [repr(str(name)) for name, dtype in zip(X.columns, X.dtypes, strict=True) if str(dtype).startswith(kinds)]


def first_of(names: Iterable[object], most: int = 10) -> str:
    """Return the first of some names, and the number of the others.

    Examples
    --------
    >>> first_of(["north", "south", "west"], 2)
    'north, south and 1 more'
    """
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most:,} more" if len(every) > most else "")


def gaps(X: Any) -> str:
    """Return the columns of a table of numbers that hold NaN or infinity, with how many; not in which rows.

    Examples
    --------
    >>> gaps([[1.0, np.nan], [2.0, np.inf]])
    'number 1 (2 values)'
    """
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))
    try:
        counts = (~np.isfinite(np.asarray(X, dtype=np.float64))).sum(axis=0)
    except (TypeError, ValueError):
        return ""
    shown = [
        f"{names[j] if names else f'number {j}'} ({counts[j]} values)" for j in np.flatnonzero(np.atleast_1d(counts))
    ]
    return first_of(shown)


def text_columns(X: Any) -> list[str]:
    """Return the columns of a table that hold text: their names, or their numbers; not what they hold.

    Examples
    --------
    >>> text_columns([[1.0, "f", "2"], [2.0, "m", "3"]])
    ['number 1']
    """
    frame = hasattr(X, "iloc")
    names = list(X.columns if frame else getattr(X, "column_names", getattr(X, "columns", ())))
    table: Any = X if frame else np.asarray(X, dtype=object)
    found = []
    for j in range(table.shape[1] if table.ndim == 2 else 0):
        cells = table.iloc[:, j] if frame else table[:, j]
        try:
            np.asarray(cells, dtype=np.float64)
        except ValueError:
            found.append(repr(str(names[j])) if names else f"number {j}")
        except TypeError:
            continue
    return found
