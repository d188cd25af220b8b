"""What a site has during one call only: state, generator, secure-sum keys and ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.errors import PolicyError
from fedspan.federation.site.noise_query import NoiseQuery, SiteLedger, message_digest, query_digest, request_digest
from fedspan.federation.site.state import NO_CHANGES, Changes, State
from fedspan.wire import Message, encoded_size

if TYPE_CHECKING:
    from fedspan.federation.site.shown_rows import ShownRows


class OversizeError(PolicyError):
    """A reply with noise is too large to leave, and its noise is not charged."""


class CallContext:
    """One call at one site.

    `base` is the site's state when the call began; `step`, `payload` and `transforms` are what was requested. `vault`
    has the keys for secure sums (a `Vault`, which this layer does not import). `simulated` makes a ledger from site and
    seed, where an embedded site has none. `gate` is called before data are read, and may refuse. `largest` limits the
    bytes of a reply with noise. `hidden` marks a reply that goes into a secure sum, over at least `least` sites.
    `changes` are those of a step that ran in another process. Where `run_part` is set, it runs the step of a secure sum
    in another process.
    """

    # Most calls need none of these, and a call at a thousand sites makes a thousand contexts.
    gate: Callable[[ShownRows], None] | None = None
    hidden = False
    least = 0
    changes: Changes = NO_CHANGES
    run_part: Callable[..., Any] | None = None
    state: State | None = None
    rng: np.random.Generator | None = None

    def __init__(
        self,
        base: Message,
        run: str = "",
        number: int = -1,
        seed: int = 0,
        step: str = "",
        payload: Message | None = None,
        transforms: tuple[bytes, ...] = (),
        vault: Any = None,
        ledger: SiteLedger | None = None,
        simulated: Callable[[str, int], SiteLedger] | None = None,
        largest: int | None = None,
    ) -> None:
        self.base = base
        self.run = run
        self.number = number
        self.seed = seed
        self.step = step
        self.payload = payload
        self.transforms = transforms
        self.vault = vault
        self.ledger = ledger
        self.simulated = simulated
        self.largest = largest
        self.charged: list[tuple[NoiseQuery, float, float]] = []

    def afresh(self, ledger: SiteLedger) -> CallContext:
        """Return the same call with another ledger, and with nothing charged, drawn or kept."""
        fresh = CallContext(
            self.base, self.run, self.number, self.seed, self.step, self.payload, self.transforms, self.vault, ledger,
            largest=self.largest,
        )  # fmt: skip
        fresh.hidden, fresh.least, fresh.changes, fresh.run_part = self.hidden, self.least, self.changes, self.run_part
        return fresh

    def state_changes(self) -> Changes:
        """Return what the call did to the site's state."""
        return self.changes if self.state is None else self.state.changes()

    def charge(self, data: bytes, mark: str, mu2: float, rho: float) -> bytes:
        """Return the key of this call's noise; `commit_charges` charges the ledger before a reply leaves."""
        assert self.ledger is not None
        query = self.query(data, mark)
        key = self.ledger.noise_key(query, mu2=mu2, rho=rho)
        self.charged.append((query, mu2, rho))
        return key

    def check_size(self, reply: Message) -> None:
        """Refuse a reply that is too large to leave, and charge nothing for it."""
        if self.largest is not None and encoded_size(reply) > self.largest:
            self.charged.clear()
            raise OversizeError(
                f"the reply has more than the {self.largest:,} bytes allowed, and the privacy budget is not charged"
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
        more: tuple[object, ...] = (len(self.charged), drawn, message_digest(self.base) if self.base else None)
        more += (mark,) if mark else ()
        digest = query_digest(self.step, self.payload or {}, self.transforms, data, more)
        return NoiseQuery(self.run, self.step, digest)
