"""Checks of what the user gave: each refuses with the name, the value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError


def whole_number(name: str, value: Any, least: int, most: int | None = None, why: str = "") -> int:
    """Return a whole number between ``least`` and ``most``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise InputError(f"{name}={value!r} must be a whole number {bounds}{why}.")
    return int(value)


def real_number(name: str, value: Any, least: float, *, above: bool = False) -> float:
    """Return a finite number of at least ``least``, or above it."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < least or (above and value == least):
        raise InputError(f"{name}={value!r} must be a finite number {'above' if above else 'of at least'} {least:g}.")
    return float(value)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a value that is not one of a few words."""
    if value not in allowed:
        raise InputError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}.")


def generator(seed: Any) -> np.random.Generator:
    """Return a generator made from an explicit seed, so that every draw can be repeated."""
    return np.random.default_rng(whole_number("seed", seed, 0))


def column(name: str, values: Any) -> NDArray[Any]:
    """Return one value a row, as an array that can be sorted: one axis, not empty, nothing missing."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}, but must hold one value a row, for at least one row.")
    try:
        missing = bool(np.any(np.not_equal(array, array)))  # true for NaN and NaT alone
        array.argsort(kind="stable")
    except TypeError:
        raise InputError(f"{name} must hold values of one kind that can be sorted, none missing.") from None
    if missing:
        raise InputError(f"{name} must not hold missing values, because such rows belong to no site.")
    return array
