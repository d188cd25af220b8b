"""The coordinator's post: signs what goes to sites, and believes only answers that are signed and bound to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from fedspan.engines.remote.about import fedspan_version
from fedspan.engines.remote.delegation import Sender
from fedspan.engines.remote.envelope import MISREAD, Opened, Sealed, open_sealed, texts
from fedspan.engines.remote.identity import Authority, Who
from fedspan.engines.remote.transport import Lost, Transport
from fedspan.errors import MessageError
from fedspan.wire import Message

#: What comes of a request: an answer that is believed, none, or why it is not believed.
Answer = Opened | Lost | MessageError


class Post:
    """Sends requests and reads answers.

    Parameters
    ----------
    lost : callable
        Is told ``lost(site, reason)`` of every site that did not answer.
    """

    def __init__(
        self, transport: Transport, identity: Sender, authority: Authority, lost: Callable[[str, str], None]
    ) -> None:
        self._transport = transport
        self._identity = identity
        self._authority = authority
        self._lost = lost
        self._serial = 0

    def send(
        self,
        kind: str,
        run: str,
        head: Message,
        parts: Mapping[str, bytes],
        to: Sequence[str],
        deadline: float,
        max_bytes: int,
    ) -> dict[str, Answer]:
        """Send a request to the sites `to` under one signature; return what came of it at each."""
        result: dict[str, Answer] = {}
        left = list(to)
        for _ in range(2):
            if not left:
                break
            self._serial = max(self._serial + 1, time.time_ns())
            about: Message = {
                "kind": kind,
                "federation": self._authority.federation,
                "version": fedspan_version(),
                "run": run,
                "serial": self._serial,
                "deadline": float(deadline),
                "sites": texts(dict.fromkeys(left, -1)),
                **head,
            }
            sealed = Sealed(self._identity, "request", about, parts)
            answers = self._transport.send({site: sealed.to(site) for site in left}, deadline)
            for site in left:
                result[site] = self._read(site, answers.get(site), sealed.digest, about, max_bytes)
            left = self._catch_up(left, result)
        for site, answer in result.items():
            if isinstance(answer, Lost):
                self._lost(site, answer.reason)
        return result

    def _catch_up(self, sites: Sequence[str], result: Mapping[str, Answer]) -> list[str]:
        """Return the sites that have seen later requests than this one: the clock here was set back since."""
        behind = []
        for site in sites:
            answer = result[site]
            seen = answer.head.get("seen") if isinstance(answer, Opened) else None
            if isinstance(seen, int) and self._serial <= seen < 2**62:
                behind.append((seen, site))
        self._serial = max([self._serial, *(seen for seen, _ in behind)])
        return [site for _, site in behind]

    def _read(self, site: str, answer: bytes | Lost | None, request: str, asked: Message, max_bytes: int) -> Answer:
        if answer is None or isinstance(answer, Lost):
            return answer or Lost("no answer came")
        try:
            opened = open_sealed(answer, self._authority, "response", site, max_bytes)
            head = opened.head
            if opened.who != Who(site) or head["site"] != site:
                raise MessageError(f"the answer is signed by {opened.who.name!r}, not by {site!r}")
            if not all(isinstance(head[name], str) for name in ("kind", "instance")):
                raise MessageError("the answer does not say what it is")
            if head["request"] != request:
                raise MessageError("stale: the answer is to another request")
            for name in ("run", "number", "part"):
                if head["kind"] not in ("refused", "failed") and head.get(name) != asked.get(name):
                    raise MessageError(f"stale: the answer is to another {name}, {str(head.get(name))[:100]!r}")
        except MessageError as error:
            return error
        except MISREAD:
            return MessageError("the answer does not say all that it must")
        return opened
