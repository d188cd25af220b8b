"""Bad sites that take turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.errors import InputError

if TYPE_CHECKING:
    from fedspan.federation import Attack, AttackedCall
    from fedspan.wire import Message


@dataclass(frozen=True)
class Redrawn:
    """Let `count` of the bad sites, drawn anew for each call without replacement, attack while the others stay honest.

    An attack on its own has a fixed Byzantine set. With this one any site may be bad at some time, and waiting for
    a bad site to show does not help. To the wrapped attack, the sites that were not drawn are good ones.

    Parameters
    ----------
    attack : attack
        Any attack; `steps` and `keys` are its own.
    count : int
        How many attack in a call; all of them where no more bad sites were asked.

    References
    ----------
    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024: gradients are
    attacked by a set that is redrawn in every iteration.

    Examples
    --------
    >>> from fedspan.attacks import SignFlip
    >>> from fedspan.federation import AttackedCall
    >>> replies = {site: {"x": 1.0} for site in "abcd"}
    >>> attack, rng = Redrawn(SignFlip(), 1), np.random.default_rng(0)
    >>> [list(attack(replies, tuple("abcd"), rng, AttackedCall("gradient", number))) for number in range(4)]
    [['d'], ['c'], ['c'], ['b']]
    """

    attack: Attack
    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1:
            raise InputError(f"count={self.count!r} must be a number of sites of at least 1")
        object.__setattr__(self, "count", int(self.count))

    def __call__(
        self, replies: Mapping[str, Message], bad: Sequence[str], rng: np.random.Generator, call: AttackedCall
    ) -> Mapping[str, Any]:
        """Return what the drawn sites send."""
        drawn = rng.choice(len(bad), size=min(self.count, len(bad)), replace=False)
        return self.attack(replies, tuple(bad[i] for i in sorted(drawn)), rng, call)
