"""The server's part of a live federation: it hands bytes to sites and brings back what came. It reads none of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.server.relay_call import RelayCall
from fedspan.engines.nvflare.server.relay_topic import IDLE_LIMIT, TOPIC
from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.setup.payload_packing import pack, unpack


class Relay:
    """Runs as a job: the user who submitted it sends it calls, and it calls the sites."""

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
        """Serve the user's process until it ends this, or is not heard of any more."""
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
            return make_reply("unauthorized", "a relay serves none but the user who submitted it")
        self._heard = time.monotonic()
        data = message.payload
        limit, different = float(data["limit"]), data["requests"]
        call = RelayCall({site: different[number] for site, number in data["to"].items()})
        self._calls.add(call)
        reply: Future[Any] = Future()
        call.result.add_done_callback(lambda done: self._reply(call, reply, new_cell_message))
        call.ask(self._threads, lambda site, request: self._call(site, request, limit))
        call.give_up(self._given_up)
        return reply

    def _reply(self, call: RelayCall, reply: Future[Any], message: Any) -> None:
        self._heard = time.monotonic()
        self._calls.discard(call)
        reply.set_result(message({}, call.result.result()))

    def _call(self, site: str, request: bytes, limit: float) -> bytes:
        return unpack(self._sites[site](timeout=limit).answer(request=pack(request)))
