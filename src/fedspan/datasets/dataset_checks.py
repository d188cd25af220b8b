"""Checks of what the user gave that data sets share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.errors import InputError


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
