"""A Byzantine set that changes from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.checks import whole_number

if TYPE_CHECKING:
    from fedspan.federation import Attack, AttackedCall
    from fedspan.wire import Message


@dataclass(frozen=True)
class Redrawn:
    """Let `count` of the malicious sites attack, drawn for each call without replacement; the others stay honest.

    Other attacks have a fixed Byzantine set. With this one any site may be malicious at some time, so that waiting for
    a malicious site to show does not help. To the wrapped attack, the sites that were not drawn are good ones.

    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024: gradients are
    attacked by a set that is redrawn in every iteration.

    Parameters
    ----------
    attack : attack
        Any attack; `steps` and `keys` are its own.
    count : int
        The number of sites that attack in a call; all of them where no more malicious sites are requested.

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
        object.__setattr__(self, "count", whole_number("count", self.count, 1))

    def __call__(
        self, replies: Mapping[str, Message], bad: Sequence[str], rng: np.random.Generator, call: AttackedCall
    ) -> Mapping[str, Any]:
        """Return the replies of the drawn sites."""
        drawn = rng.choice(len(bad), size=min(self.count, len(bad)), replace=False)
        return self.attack(replies, tuple(bad[i] for i in sorted(drawn)), rng, call)
