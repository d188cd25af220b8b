"""One call through one relay: brought, asked after until its deadline, and fetched in pieces where it is large."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from fedspan.engines.nvflare.relay_topic import PATIENCE, PIECE, to_bytes, to_text
from fedspan.engines.nvflare.relays import RelayJob
from fedspan.engines.nvflare.session import AwayError, Session
from fedspan.errors import FedspanError

#: Seconds of a call's deadline that are kept for the way back from the server.
WAY_BACK = 0.1

LATE = "no answer within the deadline"


class Call:
    """Runs in a thread of its own, which is left behind if the server dies under it."""

    def __init__(
        self, way: RelayJob, requests: Mapping[str, bytes], end: float, session: Callable[[], Session], *, alone: bool
    ) -> None:
        self.way = way
        self._requests = dict(requests)
        self._end = end
        self._session = session
        self._patience = PATIENCE if alone else 0.0
        self._name = secrets.token_hex(8)
        self._came: dict[str, bytes] = {}
        self._lost: dict[str, str] = {}
        self._done: Future[None] = Future()
        threading.Thread(target=self._run, daemon=True, name="fedspan-call").start()

    def wait(self) -> tuple[dict[str, bytes], dict[str, str], bool]:
        """Return what came, why the rest did not, and whether the session broke."""
        wait((self._done, self.way.gone), timeout=max(0.0, self._end - time.monotonic()), return_when=FIRST_COMPLETED)
        why, broken = LATE, False
        if self._done.done():
            error = self._done.exception()
            why, broken = (str(error) if error else LATE), isinstance(error, AwayError)
        elif self.way.gone.done():
            why = self.way.gone.result()
        came, lost = dict(self._came), dict(self._lost)
        return came, {site: lost.get(site, why) for site in self._requests if site not in came}, broken

    def _run(self) -> None:
        try:
            self._talk(self._session())
            self._done.set_result(None)
        except FedspanError as error:
            self._done.set_exception(error)
        except Exception as error:  # what NVIDIA FLARE raises besides: this call is lost, and its sites are looked at
            self._done.set_exception(AwayError(f"the federation's server gave no answer: {type(error).__name__}"))

    def _talk(self, session: Session) -> None:
        numbers: dict[int, int] = {}  # sites that are told the same share the bytes, which travel once
        to = {site: numbers.setdefault(id(request), len(numbers)) for site, request in self._requests.items()}
        different = {to[site]: request for site, request in self._requests.items()}
        room, texts = PIECE, []
        for number, request in sorted(different.items()):
            if len(request) <= room:
                texts.append(to_text(request))
                room -= len(request)
                continue
            texts.append("")
            for start in range(0, len(request), PIECE):
                piece = to_text(memoryview(request)[start : start + PIECE])
                self._command(session, what="put", number=number, piece=piece)
        limit = max(0.05, self._end - time.monotonic() - WAY_BACK)
        state = self._command(session, what="send", to=to, texts=texts, limit=limit, patience=self._patience)
        pause = 0.005
        while True:
            self._came |= {site: to_bytes(text) for site, text in state["answers"].items()}
            self._lost |= state["lost"]
            for site, size in state["large"].items():
                if site not in self._came:
                    self._came[site] = self._fetch(session, site, size)
            if not state["waiting"] or time.monotonic() > self._end:
                return
            time.sleep(pause)  # the server passes one command at a time: leave it to others now and then
            pause = min(2 * pause, PATIENCE)
            state = self._command(session, what="collect")

    def _fetch(self, session: Session, site: str, size: int) -> bytes:
        whole = bytearray()
        while len(whole) < size:
            whole += to_bytes(self._command(session, what="fetch", site=site, start=len(whole))["piece"])
        return bytes(whole)

    def _command(self, session: Session, **data: Any) -> dict[str, Any]:
        answer = session.command(self.way.job, call=self._name, **data)
        if answer is None:
            raise AwayError("the relay gave no answer")
        return answer
