"""The relay, a job on the server: it passes bytes on to sites and returns their answers. It reads none of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.client.user_session import TOPIC
from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.setup.payload_packing import pack, unpack

#: A relay ends when its user was not heard of for this number of seconds.
IDLE_LIMIT = 30.0

ENDED = "its process for this run has ended"


class Relay:
    """Runs as a job: the user that submitted it sends it calls, and it calls the sites."""

    def __init__(self) -> None:
        die_with_parent()
        no_tensors()
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self._user = ""
        self._sites: dict[str, Any] = {}
        self._given_up: set[str] = set()
        self._calls: set[RelayCall] = set()
        self._threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="fedspan-relay")

    @collab.main  # type: ignore[untyped-decorator]
    def main(self) -> None:
        """Serve the user's process until it ends the relay, or is not heard of any more."""
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.apis.job_def import JobMetaKey

        quiet_logs()
        self._sites = {proxy.name: proxy for proxy in collab.clients}
        self._user = collab.fl_ctx.get_prop(FLContextKey.JOB_META)[JobMetaKey.SUBMITTER_NAME]
        engine = collab.fl_ctx.get_engine()
        engine.get_cell().register_request_cb(channel=TOPIC, topic="*", cb=self._request)
        engine.register_app_command(TOPIC, self._command)
        self._heard = time.monotonic()
        while not self._ended.wait(0.2) and not collab.is_aborted:
            if time.monotonic() - self._heard > IDLE_LIMIT:
                break

    def _command(self, topic: str, data: dict[str, Any], context: Any) -> dict[str, Any]:
        """Answer one command of the user's process, at once."""
        self._heard = time.monotonic()
        what = data["what"]
        if what == "alive":
            return {"sites": sorted(self._sites)}
        if what == "forget":
            self._given_up.update(data["sites"])
            for call in list(self._calls):
                call.give_up(data["sites"])
            return {"forgotten": sorted(self._given_up)}
        if what == "end":
            self._ended.set()
            return {"ended": True}
        raise ValueError(f"{what!r} is not a command of a relay")

    def _request(self, message: Any) -> Any:
        """Take one call; the answer follows when all sites have answered, failed, or been given up."""
        from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message
        from nvflare.private.defs import CellMessageHeaderKeys

        # The server has checked, by the token that it gave at login, that the sender has this name.
        if message.get_header(CellMessageHeaderKeys.CLIENT_NAME) != self._user:
            return make_reply("unauthorized", "a relay serves only the user that submitted it")
        self._heard = time.monotonic()
        data = message.payload
        limit, different = float(data["limit"]), data["requests"]
        call = RelayCall({site: different[number] for site, number in data["to"].items()})
        self._calls.add(call)
        reply: Future[Any] = Future()
        call.result.add_done_callback(lambda done: self._reply(call, reply, new_cell_message))
        call.start(self._threads, lambda site, request: self._call(site, request, limit))
        call.give_up(self._given_up)
        return reply

    def _reply(self, call: RelayCall, reply: Future[Any], message: Any) -> None:
        self._heard = time.monotonic()
        self._calls.discard(call)
        reply.set_result(message({}, call.result.result()))

    def _call(self, site: str, request: bytes, limit: float) -> bytes:
        return unpack(self._sites[site](timeout=limit).answer(request=pack(request)))


class RelayCall:
    """Calls sites, each in a thread; `result` is set as soon as each has answered, failed, or been given up."""

    def __init__(self, requests: Mapping[str, bytes]) -> None:
        self.result: Future[dict[str, Any]] = Future()
        self._lock = threading.Lock()
        self._waiting = dict(requests)
        self._answers: dict[str, bytes] = {}
        self._lost: dict[str, str] = {}

    def start(self, threads: Executor, call: Callable[[str, bytes], bytes]) -> None:
        """Send each site its request."""
        for site, request in list(self._waiting.items()):
            future = threads.submit(call, site, request)
            future.add_done_callback(lambda done, site=site: self._done(site, done))  # type: ignore[misc]

    def give_up(self, sites: Iterable[str]) -> None:
        """Wait for `sites` no longer."""
        with self._lock:
            for site in sites:
                if self._waiting.pop(site, None) is not None:
                    self._lost[site] = ENDED
        self._finish()

    def _done(self, site: str, future: Future[bytes]) -> None:
        error = future.exception()
        with self._lock:
            if self._waiting.pop(site, None) is None:
                return
            if error is None:
                self._answers[site] = future.result()
            else:
                self._lost[site] = _reason(error)
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            if not self._waiting and not self.result.done():
                self.result.set_result({"answers": self._answers, "lost": self._lost})


def _reason(error: BaseException) -> str:
    cause = getattr(error, "cause", error)
    if isinstance(cause, TimeoutError):
        return "no answer within the deadline"
    return f"{getattr(error, 'cause_type', None) or type(cause).__name__}: {cause}"
