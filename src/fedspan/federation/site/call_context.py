"""What a site has during one call only: state, generator, secure-sum keys and ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedspan.errors import PolicyError
from fedspan.federation.site.noise_query import NoiseQuery, SiteLedger, message_digest, query_digest, request_digest
from fedspan.federation.site.state import State
from fedspan.wire import Message, encoded_size

if TYPE_CHECKING:
    from fedspan.federation.site.site import Site


class OversizeError(PolicyError):
    """A reply is larger than it may be."""


class SumKeys(Protocol):
    """What a site keeps to itself for secure sums (`fedspan.secure_sum.sum_vault.Vault`)."""

    sums_only: bool

    @property
    def resolution(self) -> float:
        """The distance of two neighbouring numbers of a sum."""

    def knows(self, me: str) -> int:
        """Return how many sites this one, called `me`, could be in a sum with, itself included."""

    def forget(self, run: str) -> None:
        """Drop the sums of a run."""


@dataclass(slots=True, eq=False)
class CallContext:
    """One call at one site.

    `base` is the site's state when the call began, `step`, `payload` and `transforms` are what was requested. `gate` is
    called before data are read, and may refuse. `hidden` says that the reply goes into a secure sum, and `least` is the
    fewest parts that it must be added up with. `largest` limits the bytes of a reply that carries noise.
    """

    base: Message
    run: str = ""
    number: int = -1
    seed: int = 0
    step: str = ""
    payload: Message | None = None
    transforms: tuple[bytes, ...] = ()
    vault: Any = None
    ledger: SiteLedger | None = None
    gate: Callable[[Site], None] | None = None
    largest: int | None = None
    simulate: Callable[[], SiteLedger] | None = None
    charged: list[tuple[NoiseQuery, float, float]] = field(default_factory=list)
    hidden: bool = False
    least: int = 0
    # Made on first use: most steps need neither.
    state: State | None = None
    rng: np.random.Generator | None = None

    def own_or_simulated(self) -> SiteLedger | None:
        """Return the site's own ledger, or in an embedded run without one a simulated one."""
        if self.ledger is None and self.simulate is not None:
            self.ledger = self.simulate()
        return self.ledger

    @property
    def charges(self) -> int:
        """The number of charges that this call makes."""
        return len(self.charged)

    def charge(self, data: bytes, mark: str, mu2: float, rho: float) -> bytes:
        """Return the key of this call's noise; the ledger is charged by `commit_charges`, before a reply leaves."""
        assert self.ledger is not None
        query = self.query(data, mark)
        key = self.ledger.noise_key(query, mu2=mu2, rho=rho)
        self.charged.append((query, mu2, rho))
        return key

    def check_size(self, reply: Message) -> None:
        """Refuse a reply that is too large to leave, before its noise is charged."""
        if self.largest is not None and encoded_size(reply) > self.largest:
            raise OversizeError(
                f"the reply has more than the {self.largest:,} bytes allowed, and the privacy budget is not charged for it"
            )

    def commit_charges(self) -> None:
        """Charge the ledger for what this call is about to reveal: its reply, or that its step failed."""
        for query, mu2, rho in self.charged:
            assert self.ledger is not None
            self.ledger.key(query, mu2=mu2, rho=rho)

    def request_digest(self, step: str, payload: Message) -> bytes:
        """Return the digest of a step and its payload as this call requests them."""
        return request_digest(step, payload, self.transforms, self.run, self.number, self.seed)

    def query(self, data: bytes, mark: str = "") -> NoiseQuery:
        """Return the call as a query about data with this digest: all that the reply can depend on.

        The reply may depend on what was drawn from the generator and on the site's state; and a call may charge twice.
        A `mark` makes it another query.
        """
        drawn = None if self.rng is None else (self.seed, self.number)
        more: tuple[object, ...] = (self.charges, drawn, message_digest(self.base) if self.base else None)
        more += (mark,) if mark else ()
        digest = query_digest(self.step, self.payload or {}, self.transforms, data, more)
        return NoiseQuery(self.run, self.step, digest)
