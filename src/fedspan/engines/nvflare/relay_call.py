"""One call on its way: which sites were asked, what came back, and what was fetched of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from fedspan.engines.nvflare.relay_topic import PIECE, to_text


class RelayCall:
    """Asks sites in threads and hands out each answer once."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._end = time.monotonic() + limit
        self._changed = threading.Condition()
        self._waiting: dict[str, Future[bytes]] = {}
        self._large: dict[str, bytes] = {}
        self._lost: dict[str, str] = {}

    def ask(self, threads: Executor, requests: Mapping[str, bytes], call: Callable[[str, bytes, float], bytes]) -> None:
        """Bring each site its request, in a thread each."""
        for site, request in requests.items():
            future = self._waiting[site] = threads.submit(call, site, request, self._limit)
            future.add_done_callback(self._wake)

    def give_up(self, sites: Iterable[str], why: str) -> None:
        """Wait for `sites` no longer."""
        with self._changed:
            for site in sites:
                if site in self._waiting and not self._waiting[site].done():
                    del self._waiting[site]
                    self._lost[site] = why
            self._changed.notify_all()

    def collect(self, patience: float) -> dict[str, Any]:
        """Wait at most `patience` seconds for all answers, and hand out those that came, large ones by their size."""
        with self._changed:
            self._changed.wait_for(lambda: all(future.done() for future in self._waiting.values()), timeout=patience)
            room, answers = PIECE, {}
            for site in [site for site, future in self._waiting.items() if future.done()]:
                future = self._waiting.pop(site)
                if (error := future.exception()) is not None:
                    self._lost[site] = reason_of(error)
                elif len(answer := future.result()) > room:
                    self._large[site] = answer
                else:
                    answers[site] = to_text(answer)
                    room -= len(answer)
            if time.monotonic() > self._end + 1.0:
                self._lost |= dict.fromkeys(self._waiting, "no answer within the deadline")
                self._waiting.clear()
            lost, self._lost = self._lost, {}
            sizes = {site: len(answer) for site, answer in self._large.items()}
            return {"answers": answers, "lost": lost, "large": sizes, "waiting": len(self._waiting)}

    def fetch(self, site: str, start: int) -> dict[str, Any]:
        """Hand out a piece of a large answer."""
        return {"piece": to_text(memoryview(self._large[site])[start : start + PIECE])}

    def _wake(self, future: Future[bytes]) -> None:
        with self._changed:
            self._changed.notify_all()


def reason_of(error: BaseException) -> str:
    """Say in words why a call brought no answer."""
    cause = getattr(error, "cause", error)
    if isinstance(cause, TimeoutError):
        return "no answer within the deadline"
    return f"{getattr(error, 'cause_type', None) or type(cause).__name__}: {cause}"
