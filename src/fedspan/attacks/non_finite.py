"""The attack that every policy should catch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen
from fedspan.errors import InputError

_VALUES = ("nan", "inf")


@dataclass(frozen=True)
class NonFinite(KeyAttack):
    """Send NaN, or infinity, in every entry. One of them ruins any average that does not look.

    Parameters
    ----------
    value : {"nan", "inf"}, default="nan"
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"x": np.zeros(2)}, "b": {"x": np.zeros(2)}}
    >>> NonFinite("inf")(replies, ("b",), np.random.default_rng(0), AttackedCall("gradient", 0))
    {'b': {'x': array([inf, inf])}}
    """

    value: str = "nan"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value not in _VALUES:
            raise InputError(f"value={self.value!r} must be 'nan' or 'inf'")

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return the value that is no number."""
        return np.full_like(seen.own[:1], float(self.value))
