"""What a site has during one call only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedspan.federation.site.noise_query import Question, SiteLedger, asked_digest, message_digest, question_digest
from fedspan.federation.site.state import State
from fedspan.wire import Message

if TYPE_CHECKING:
    from fedspan.federation.site.site import Site
    from fedspan.secure_sum.sum_vault import Vault


class Asked(NamedTuple):
    """Step and payload of a call, and the digests of the lenses that the site is seen through."""

    run: str
    what: str
    payload: Message
    lenses: tuple[bytes, ...] = ()


class Work:
    """What a site has during one call: its state as the call began, its generator, its vault and its ledger."""

    __slots__ = (
        "asked",
        "base",
        "call",
        "charges",
        "gate",
        "hidden",
        "least",
        "ledger",
        "rng",
        "seed",
        "state",
        "vault",
    )

    def __init__(
        self,
        base: Message,
        seed: int,
        call: int,
        vault: Vault | None,
        ledger: SiteLedger | None,
        asked: Asked,
        gate: Callable[[Site], None] | None = None,
    ) -> None:
        self.base = base
        self.seed = seed
        self.call = call
        self.vault = vault
        self.ledger = ledger
        self.asked = asked
        self.gate = gate
        self.charges = 0
        # Whether the reply goes into a secure sum, and the fewest parts that it must be added up with.
        self.hidden, self.least = False, 0
        # Both are made on first use: most steps need neither.
        self.state: State | None = None
        self.rng: np.random.Generator | None = None

    def asked_digest(self, what: str, payload: Message) -> bytes:
        """Return the digest of a step and its payload, if these are what this call asks for."""
        return asked_digest(what, payload, self.asked.lenses, self.asked.run, self.call, self.seed)

    def question(self, data: bytes, anew: str = "") -> Question:
        """Return the call as a question about data with this digest: all that the reply can depend on.

        What came of the generator may be in the reply, and so may what the site has kept; and a call may charge twice.
        What `anew` says makes it another question.
        """
        drawn = None if self.rng is None else (self.seed, self.call)
        more: tuple[object, ...] = (self.charges, drawn, message_digest(self.base) if self.base else None)
        more += (anew,) if anew else ()
        digest = question_digest(self.asked.what, self.asked.payload, self.asked.lenses, data, more)
        return Question(self.asked.run, self.asked.what, digest)
