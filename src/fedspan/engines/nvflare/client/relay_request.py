"""One call through one relay, in a thread of its own, which is left behind if the server dies under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from fedspan.engines.nvflare.client.relays import RelayJob
from fedspan.engines.nvflare.client.user_session import AwayError, Session

#: Seconds of a call's deadline that are kept for the way back from the server.
WAY_BACK = 0.1

LATE = "no answer within the deadline"


class Call:
    """Brings requests to sites; `wait` says what came of it."""

    def __init__(
        self, way: RelayJob, requests: Mapping[str, bytes], end: float, session: Callable[[], Session]
    ) -> None:
        self.way = way
        self._requests = dict(requests)
        self._end = end
        self._session = session
        self._done: Future[dict[str, Any]] = Future()
        threading.Thread(target=self._run, daemon=True, name="fedspan-call").start()

    def wait(self) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return what came, and why the rest did not."""
        either: tuple[Future[Any], Future[Any]] = (self._done, self.way.gone)
        wait(either, timeout=max(0.0, self._end - time.monotonic()), return_when=FIRST_COMPLETED)
        state: dict[str, Any] = {"answers": {}, "lost": {}}
        why = LATE
        if self._done.done():
            error = self._done.exception()
            if error is None:
                state = self._done.result()
            else:
                why = str(error)
        elif self.way.gone.done():
            why = self.way.gone.result()
        came = {site: bytes(answer) for site, answer in state["answers"].items() if site in self._requests}
        lost = {site: str(state["lost"].get(site, why)) for site in self._requests if site not in came}
        return came, lost

    def _run(self) -> None:
        try:
            numbers: dict[int, int] = {}  # sites that are told the same share the bytes, which travel once
            to = {site: numbers.setdefault(id(request), len(numbers)) for site, request in self._requests.items()}
            different = {to[site]: request for site, request in self._requests.items()}
            session, left = self._session(), self._end - time.monotonic()
            message = {
                "to": to,
                "requests": [different[number] for number in sorted(different)],
                "limit": max(0.05, left - WAY_BACK),
            }
            self._done.set_result(session.call(self.way.job, message, left + 1.0))
        except Exception as error:  # whatever NVIDIA FLARE raises: this call is lost, and its sites are looked at
            why = str(error) if isinstance(error, AwayError) else f"no way to the server: {type(error).__name__}"
            self._done.set_exception(AwayError(why))
