"""One call on its way to the sites, what comes back from each, and what an engine must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

from fedspan.federation.message_sizes import SameSize
from fedspan.federation.outcomes import Failure
from fedspan.federation.policy import Policy
from fedspan.federation.site.noise_query import message_digest, query_digest
from fedspan.federation.site.state import NO_CHANGES, Changes
from fedspan.federation.site.steps import Step
from fedspan.federation.site.transforms import Transform
from fedspan.wire import Message, encode, encoded_size


@dataclass(frozen=True)
class Call:
    """A step to run, the same for all recipients.

    `number` counts the calls of its run from 0; with the run's seed and the site's name it decides what a site draws.
    `how` states what the protocol wants of the replies: ``"ask"`` (each), ``"sum"``, ``"mean"`` or ``"merge"``.
    `conditions` names the attacks and faults that are rehearsed. A secure sum is one call in several parts: `part`
    counts them, and `apart` is the payload that one site alone receives besides.
    """

    run: str
    number: int
    seed: int
    step: Step
    payload: Message
    to: tuple[str, ...]
    transforms: tuple[Transform, ...] = ()
    how: str = "ask"
    conditions: str = ""
    part: int = 0
    apart: Mapping[str, Message] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """What identifies this call in a journal: two calls with one digest are the same."""
        digest = blake2b(digest_size=16)
        for part in (self.how, self.step.id, self.conditions, *self.to):
            digest.update(part.encode() + b"\0")
        for transform in self.transform_digests:
            digest.update(transform)
        for message in (self.payload, *(self.apart[site] for site in sorted(self.apart))):
            digest.update(encode({key: message[key] for key in sorted(message)}))
        return digest.hexdigest()

    @cached_property
    def bytes_down(self) -> Mapping[str, int]:
        """The bytes of the message to each site."""
        transforms = sum(transform.size for transform in self.transforms)
        if not self.apart:
            return SameSize(self.to, encoded_size(self.payload) + transforms)
        return {site: encoded_size(self.payload_of(site)) + transforms for site in self.to}

    def query(self, site: str) -> bytes:
        """Return what identifies this call as one site receives it, whichever other sites receive it."""
        apart = self.apart.get(site, {})
        return self._common + (message_digest(apart) if apart else b"")

    @property
    def session(self) -> str:
        """The secure sum that this call is a part of, if it is one."""
        return str(self.payload.get("session", ""))

    @cached_property
    def _common(self) -> bytes:
        return query_digest(self.step.id, self.payload, self.transform_digests, b"", (self.how, self.conditions))

    @cached_property
    def transform_digests(self) -> tuple[bytes, ...]:
        """What identifies each of the transforms."""
        return tuple(transform.digest for transform in self.transforms)

    def payload_of(self, site: str) -> Message:
        """Return the whole payload for one site."""
        return self.payload | self.apart[site] if site in self.apart else self.payload


@dataclass(slots=True, eq=False)
class Delivery:
    """A site's reply with what binds it to its call: its number and what the call did to the site's state.

    `canonical` is False after an attack or fault has touched `reply`. `sent` is what the site itself sent, where that
    is known: the reply must have its shapes. `rows` is the site's number of rows, which identifies per-row arrays; it
    is -1 unless the step reveals rows.
    """

    number: int
    reply: Any
    rows: int = -1
    changes: Changes = NO_CHANGES
    canonical: bool = True
    sent: Message | None = None

    def written_by_attack(self, reply: Any) -> Delivery:
        """Return this delivery with what an attack wrote, which may be anything."""
        return replace(self, reply=reply, canonical=False, sent=None)

    def received(self, reply: Message) -> Delivery:
        """Return this delivery as it comes out of the wire format."""
        return Delivery(self.number, reply, self.rows, self.changes)

    def damaged(self, reply: Any) -> Delivery:
        """Return this delivery with what a fault made of the reply on its way."""
        return replace(self, reply=reply, canonical=False, sent=self.reply)


Outcome = Delivery | Failure


class Engine(Protocol):
    """Carries calls to sites: all that differs between engines.

    An engine may also have ``arriving``, with the arguments of `call`, that yields the outcomes in the order of `to`,
    each with its site. Sums then hold no more replies than have not been added up yet.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""

    def describe(self) -> dict[str, Any]:
        """Return what a journal's head keeps of this engine: the sites' data shapes, the number of BLAS threads."""

    @property
    def advice(self) -> tuple[str, ...]:
        """The keys of `describe` that an existing journal decides: a resumed run continues with its own values."""

    def begin(self, name: str, head: Mapping[str, Any] | None) -> str:
        """Prepare for a run and return its id; `head` is the journal's, where there is one.

        The number of BLAS threads is fixed for the run: the journal's, or the present one.
        """

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`; `accepted` names the last call accepted from each (absent: none).

        Each site receives ``call.payload_of(site)``.
        """

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait, at most `seconds`, until one of the offline sites may be back; return whether one is."""

    def restore(self, call: Call, changes: Mapping[str, Changes], accepted: Mapping[str, int], policy: Policy) -> None:
        """Bring the sites that answered a recorded call to the state after it; `changes` are the journal's, by site."""

    def end(self, run: str, sites: Sequence[str], resumable: bool) -> None:
        """Release a run, and its state unless the run is `resumable` from what the sites have kept."""


@dataclass
class Collected:
    """The result of one call: single replies, or under the name ``""`` their total, or the reason for its absence."""

    replies: dict[str, Message] = field(default_factory=dict)
    error: str | None = None
    answered: tuple[str, ...] = ()
    failed: dict[str, Failure] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)
    bytes_up: Mapping[str, int] = field(default_factory=dict)
    bytes_down: Mapping[str, int] = field(default_factory=dict)

    def refuse(self, failures: Mapping[str, Failure]) -> None:
        """Count sites whose replies were refused as failed."""
        for site, failure in failures.items():
            del self.replies[site]
            self.changes.pop(site, None)
            self.failed[site] = failure
        if failures:
            self.answered = tuple(self.replies)


#: Sends one (part of a) call out and returns what keeps to the policy.
Exchange = Callable[[Call], Collected]


class Summation(Protocol):
    """Adds replies up without showing them to the coordinator (`fedspan.secure_sum`)."""

    def check_possible(self, what: str, n_sites: int) -> None:
        """Refuse with a `PolicyError` a sum that can't be secure, before any site is contacted."""

    def check_set(self, call: Call) -> None:
        """Refuse a sum that, with earlier ones of its run, would reveal the part of too few sites."""

    def made(self, call: Call, answered: tuple[str, ...]) -> None:
        """Note a total that the coordinator has, from the sites or from the journal."""

    def collect(self, call: Call, exchange: Exchange, needed: int) -> Collected:
        """Return the total of the replies to `call` over at least `needed` sites, or the reason for its absence."""
