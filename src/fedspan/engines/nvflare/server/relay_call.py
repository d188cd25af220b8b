"""One call on its way: which sites were asked, what came back, and whom nobody waits for any longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

GONE = "its process for this run is gone"


class RelayCall:
    """Asks sites, each in a thread; `result` is set as soon as each has answered, failed, or been given up."""

    def __init__(self, requests: Mapping[str, bytes]) -> None:
        self.result: Future[dict[str, Any]] = Future()
        self._lock = threading.Lock()
        self._waiting = dict(requests)
        self._answers: dict[str, bytes] = {}
        self._lost: dict[str, str] = {}

    def ask(self, threads: Executor, call: Callable[[str, bytes], bytes]) -> None:
        """Bring each site its request."""
        for site, request in list(self._waiting.items()):
            future = threads.submit(call, site, request)
            future.add_done_callback(lambda done, site=site: self._came(site, done))  # type: ignore[misc]

    def give_up(self, sites: Iterable[str]) -> None:
        """Wait for `sites` no longer."""
        with self._lock:
            for site in sites:
                if self._waiting.pop(site, None) is not None:
                    self._lost[site] = GONE
        self._finish()

    def _came(self, site: str, future: Future[bytes]) -> None:
        error = future.exception()
        with self._lock:
            if self._waiting.pop(site, None) is None:
                return
            if error is None:
                self._answers[site] = future.result()
            else:
                self._lost[site] = reason_of(error)
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            if not self._waiting and not self.result.done():
                self.result.set_result({"answers": self._answers, "lost": self._lost})


def reason_of(error: BaseException) -> str:
    """Say in words why a call brought no answer."""
    cause = getattr(error, "cause", error)
    if isinstance(cause, TimeoutError):
        return "no answer within the deadline"
    return f"{getattr(error, 'cause_type', None) or type(cause).__name__}: {cause}"
