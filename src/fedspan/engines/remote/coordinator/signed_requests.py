"""The coordinator's post: signs what goes to sites, and believes only answers that are signed and bound to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from fedspan.engines.remote.messages.delegation import Sender
from fedspan.engines.remote.messages.envelope import MISREAD, Opened, Sealed, open_sealed, texts
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.identity import Authority, Who
from fedspan.engines.remote.messages.serials import Serials
from fedspan.engines.remote.messages.transport import Lost, Transport
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
    ) -> dict[str, Answer]:
        """Send a request to the sites `to` within `deadline` seconds; return what came of it at each.

        It goes out under one signature, but for sites that count otherwise (see `Serials`).
        """
        result: dict[str, Answer] = {}
        left, end = list(to), time.monotonic() + deadline
        for _ in range(2):
            if not left:
                break
            seconds = max(0.0, min(deadline, end - time.monotonic()))
            sealed: dict[int, tuple[Sealed, Message]] = {}
            serials = self._serials.next(left)
            for serial in sorted(set(serials.values())):
                about: Message = {
                    "kind": kind,
                    "federation": self._authority.federation,
                    "version": fedspan_version(),
                    "run": run,
                    "serial": serial,
                    "deadline": float(seconds),
                    "sites": texts(dict.fromkeys(left, -1)),
                    **head,
                }
                sealed[serial] = (Sealed(self._identity, "request", about, parts), about)
            answers = self._transport.send({site: sealed[serials[site]][0].to(site) for site in left}, seconds)
            for site in left:
                request, about = sealed[serials[site]]
                result[site] = self._read(site, answers.get(site), request.digest, about, max_bytes)
            left = [site for site in left if self._is_behind(site, result[site])]
        for site, answer in result.items():
            if isinstance(answer, Lost):
                self._lost(site, answer.reason)
        return result

    def _is_behind(self, site: str, answer: Answer) -> bool:
        """Tell whether a site has seen later requests than this one, and takes a later one."""
        return (
            isinstance(answer, Opened) and "seen" in answer.head and self._serials.catch_up(site, answer.head["seen"])
        )

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
