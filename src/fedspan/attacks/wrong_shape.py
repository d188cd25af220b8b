"""The attack on whoever believes that all replies have one shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.base import Array, KeyAttack, Seen
from fedspan.errors import InputError

_WAYS = ("drop", "transpose")


@dataclass(frozen=True)
class WrongShape(KeyAttack):
    """Send the honest values in a wrong shape: without the last row, or with the axes reversed.

    Where that would leave the shape as it is (a single number, an empty array, a vector or a square matrix to
    transpose), the value gets one axis more.

    Parameters
    ----------
    how : {"drop", "transpose"}, default="drop"
    steps, keys : names, optional
        What to attack; see `fedspan.attacks`.

    Examples
    --------
    >>> from fedspan.federation import AttackedCall
    >>> replies = {"a": {"U": np.eye(4, 2), "n": 1.0}, "b": {"U": np.eye(4, 2), "n": 2.0}}
    >>> lie = WrongShape("transpose")(replies, ("b",), np.random.default_rng(0), AttackedCall("local_basis", 0))["b"]
    >>> lie["U"].shape, lie["n"]
    ((2, 4), array([2.]))
    """

    how: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.how not in _WAYS:
            raise InputError(f"how={self.how!r} must be 'drop' or 'transpose'")

    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return each site's own value, misshapen."""
        own = seen.own
        if own.ndim > 1:
            bent = own[:, :-1] if self.how == "drop" else np.moveaxis(own.T, -1, 0)
            if bent.shape != own.shape:
                return bent
        return own[..., None]
