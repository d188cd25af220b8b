"""One call on its way to the sites, and what comes back from each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

from fedspan.federation.policy import Policy
from fedspan.federation.site.noise_query import message_digest, question_digest
from fedspan.federation.site.state import NO_CHANGES, Changes
from fedspan.federation.site.steps import Step
from fedspan.federation.site.transforms import Lens
from fedspan.wire import Message, encode, encoded_size


@dataclass(frozen=True)
class Call:
    """A step to run, the same for all recipients.

    `number` counts the calls of its run from 0; together with the run's seed and the site's name it decides what a
    site draws. `how` says what is wanted of the replies: ``"ask"`` (each), ``"sum"`` or ``"mean"``; `conditions`, which
    attacks and faults it suffers. `digest` identifies all of it, so that a journal knows its own calls again.

    A secure sum is one call in several parts: `part` counts them, and `apart` is what single sites are told besides.
    """

    run: str
    number: int
    seed: int
    step: Step
    payload: Message
    to: tuple[str, ...]
    lenses: tuple[Lens, ...] = ()
    how: str = "ask"
    conditions: str = ""
    part: int = 0
    apart: Mapping[str, Message] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """What identifies this call: two calls with one digest are the same."""
        digest = blake2b(digest_size=16)
        for part in (self.how, self.step.name, self.conditions, *self.to):
            digest.update(part.encode() + b"\0")
        for lens in self.lens_digests:
            digest.update(lens)
        for message in (self.payload, *(self.apart[site] for site in sorted(self.apart))):
            digest.update(encode({key: message[key] for key in sorted(message)}))
        return digest.hexdigest()

    def question(self, site: str) -> bytes:
        """Return what identifies what one site is told in this call, whoever else is asked."""
        apart = self.apart.get(site, {})
        return self._told + (message_digest(apart) if apart else b"")

    @property
    def session(self) -> str:
        """The secure sum that this call is a part of, if it is one."""
        return str(self.payload.get("session", ""))

    @cached_property
    def _told(self) -> bytes:
        return question_digest(self.step.name, self.payload, self.lens_digests, b"", (self.how, self.conditions))

    @cached_property
    def lens_digests(self) -> tuple[bytes, ...]:
        """What identifies each of the lenses."""
        return tuple(lens.digest for lens in self.lenses)

    def payload_of(self, site: str) -> Message:
        """Return all that one site is told."""
        return self.payload | self.apart[site] if site in self.apart else self.payload

    @cached_property
    def bytes_down(self) -> dict[str, int]:
        """Bytes of the message to each site."""
        lenses = sum(lens.size for lens in self.lenses)
        if not self.apart:
            return dict.fromkeys(self.to, encoded_size(self.payload) + lenses)
        return {site: encoded_size(self.payload_of(site)) + lenses for site in self.to}


@dataclass(slots=True, eq=False)
class Delivery:
    """A site's reply with what binds it to its call: which one it answers and what it did to the site's state.

    `reply` may be anything once an attack or a fault has had it, and `canonical` says that it has not. `sent` is what
    the site itself sent, where that is known: what arrives must have its shapes. `rows` is the number of rows of the
    site, which tells arrays with one entry per row.
    """

    number: int
    reply: Any
    rows: int = -1
    changes: Changes = NO_CHANGES
    canonical: bool = True
    sent: Message | None = None

    def written_by_attack(self, reply: Any) -> Delivery:
        """Return this delivery carrying what an attack wrote: nothing is known of what it should be."""
        return replace(self, reply=reply, canonical=False, sent=None)

    def damaged(self, reply: Any) -> Delivery:
        """Return this delivery carrying what a fault made of the reply on its way."""
        return replace(self, reply=reply, canonical=False, sent=self.reply)


@dataclass(slots=True, eq=False)
class Failure:
    """Why a site gave no reply, in words; `error` is what it raised, where that happened in this process.

    Of a site that is `away` a reply may yet come: it is asked again where the quorum needs it.
    """

    reason: str
    error: BaseException | None = None
    away: bool = False


Outcome = Delivery | Failure

#: How the reason of a failure begins where the site was not reached at all.
AWAY = "away: "


class Engine(Protocol):
    """Carries calls to sites. The only importer of its framework, and the only thing that differs between engines."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""

    def describe(self) -> dict[str, Any]:
        """Return what a journal's head keeps of this engine: the sites' data shapes, the number of BLAS threads."""

    @property
    def advice(self) -> tuple[str, ...]:
        """The keys of `describe` that a journal decides where there is one: a resumed run goes on with its own."""

    def begin(self, name: str, head: Mapping[str, Any] | None) -> str:
        """Prepare for a run and return its id; `head` is the journal's, where there is one.

        The number of BLAS threads is fixed for the run: the journal's, or the present one.
        """

    def call(self, call: Call, to: Sequence[str], accepted: Mapping[str, int], policy: Policy) -> dict[str, Outcome]:
        """Run `call` at the sites `to`; `accepted` names the last call accepted from each (absent: none).

        A site is told ``call.payload_of(site)``.
        """

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait, at most so long, until one of the sites that are away may be there again; say whether one is."""

    def restore(self, run: str, site: str, number: int, changes: Changes) -> None:
        """Do to a site's state what the journal says that call `number` did."""

    def end(self, run: str, sites: Sequence[str], resumable: bool) -> None:
        """Let go of a run, and of its state unless it is `resumable` by what the sites themselves have kept."""
