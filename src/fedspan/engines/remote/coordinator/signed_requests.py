"""Signed requests: the coordinator signs what it sends, and accepts only answers that are signed and bound to it.

A transport carries the bytes to the sites and back. It neither reads nor trusts them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedspan.engines.remote.messages.envelope import MISREAD, Opened, Sealed, open_sealed
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.identity import Authority, Participant, Signer, UnlistedError
from fedspan.errors import MessageError
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.wire import Message

#: An accepted answer, or the reason for its absence.
Answer = Opened | Failure
#: Nanoseconds since 1970 that no clock shows: a site that claims to have seen a later serial is not believed.
_MOST_SERIAL = 2**62


@dataclass(frozen=True)
class Lost:
    """Why no answer came from a site."""

    reason: str


class Transport(Protocol):
    """A connection to the sites of one federation."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""

    def send(self, requests: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes | memoryview | Lost]]:
        """Deliver each site its request; yield each site's answer when it arrives, or why it is missing.

        End within `deadline` seconds. Try once. Never raise because a site or the server is offline; yield at once for
        a site known to be offline.
        """

    def online(self) -> frozenset[str]:
        """Return the sites that are known to be online, without waiting."""

    def close(self) -> None:
        """Close the connection."""


class Serials:
    """Serial numbers of requests, by the clock, so that they also rise over processes.

    A site takes a run's requests in rising order only. A site that has seen a later number than the clock's, because
    the clock was set back, receives higher ones. What one site claims has no effect on the numbers of the others.
    """

    def __init__(self) -> None:
        self._clock = 0
        self._last: dict[str, int] = {}  # by site: the highest number that it may have seen

    def next(self, sites: Collection[str]) -> dict[str, int]:
        """Return the number of the next request to each of the sites: one for all that have seen no later one."""
        self._clock = max(self._clock + 1, time.time_ns())
        self._last |= {site: max(self._clock, self._last.get(site, -1) + 1) for site in sites}
        return {site: self._last[site] for site in sites}

    def catch_up(self, site: str, seen: Any) -> bool:
        """Record the last number that a site has seen; return whether it may accept a further request."""
        if type(seen) is not int or not self._last[site] <= seen < _MOST_SERIAL:
            return False
        self._last[site] = seen
        return True


class SignedRequests:
    """Sends requests over `transport` and checks the answers."""

    def __init__(self, transport: Transport, signer: Signer, authority: Authority) -> None:
        self.transport = transport
        self._signer = signer
        self.authority = authority
        self._serials = Serials()

    def send(
        self,
        kind: str,
        run: str,
        head: Message,
        parts: Mapping[str, bytes],
        to: Sequence[str],
        deadline: float,
        max_bytes: int,
    ) -> Iterator[tuple[str, Answer]]:
        """Send a request to the sites `to` within `deadline` seconds; yield the answer of each when it arrives.

        One signature serves all sites with the same serial number (see `Serials`).
        """
        self._signer.follow(self.authority.members)
        left, end, last = list(to), time.monotonic() + deadline, False
        while left:
            seconds = max(0.0, min(deadline, end - time.monotonic()))
            sealed: dict[int, tuple[Sealed, Message]] = {}
            serials = self._serials.next(left)
            for serial in sorted(set(serials.values())):
                bound: Message = {
                    "kind": kind,
                    "federation": self.authority.federation,
                    "version": fedspan_version(),
                    "run": run,
                    "serial": serial,
                    "deadline": float(seconds),
                    "sites": json.dumps(dict.fromkeys(left, -1)),
                    **head,
                }
                sealed[serial] = (Sealed(self._signer, "request", bound, parts), bound)
            requests = {site: sealed[serials[site]][0].to(site) for site in left}
            waiting, left = set(left), []
            for site, raw in self.transport.send(requests, seconds):
                if site in waiting:
                    waiting.discard(site)
                    request, bound = sealed[serials[site]]
                    answer = self._checked(site, raw, request.digest, bound, max_bytes)
                    del raw  # a message, which only the caller may keep
                    if not last and self._has_seen_later(site, answer):
                        left.append(site)
                    else:
                        yield site, answer
                    del answer
            yield from ((site, Failure(FailureKind.OFFLINE, "no answer came")) for site in sorted(waiting))
            last = True

    def _has_seen_later(self, site: str, answer: Answer) -> bool:
        """Return whether a site refuses a request because it has seen later ones, and may accept a higher number."""
        return (
            isinstance(answer, Opened) and "seen" in answer.head and self._serials.catch_up(site, answer.head["seen"])
        )

    def _checked(
        self, site: str, answer: bytes | memoryview | Lost, request: str, bound: Message, max_bytes: int
    ) -> Answer:
        if isinstance(answer, Lost):
            return Failure(FailureKind.OFFLINE, answer.reason)
        try:
            opened = open_sealed(answer, self.authority, "response", site, max_bytes)
            head = opened.head
            if opened.sender != Participant(site) or head["site"] != site:
                raise MessageError(f"the answer is signed by {opened.sender.name!r}, not by {site!r}")
            if not all(isinstance(head[name], str) for name in ("kind", "instance")):
                raise MessageError("the answer does not state what it is")
            if head["request"] != request:
                return Failure(FailureKind.STALE, "the answer is to another request")
            for name in ("run", "number", "part"):
                if head["kind"] not in ("refused", "failed") and head.get(name) != bound.get(name):
                    other = str(head.get(name))[:100]
                    return Failure(FailureKind.STALE, f"the answer is to another {name}, {other!r}")
        except UnlistedError as error:  # a site whose key was replaced connects again with the new one
            kind = FailureKind.OFFLINE if site in self.authority.sites else FailureKind.REFUSED
            return Failure(kind, str(error), error)
        except MessageError as error:
            return Failure(FailureKind.REFUSED, str(error), error)
        except MISREAD:
            return Failure(FailureKind.REFUSED, "the answer lacks a field that it must have")
        return opened
