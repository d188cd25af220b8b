"""The server's part of a live federation: it hands bytes to sites and brings back what came. It reads none of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.lifeline import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.parcel import pack, unpack
from fedspan.engines.nvflare.relay_call import RelayCall
from fedspan.engines.nvflare.relay_topic import IDLE_LIMIT, PATIENCE, TOPIC, to_bytes

#: Calls that are kept while their answers are fetched: the user's process makes one at a time, and repeats what is lost.
KEPT_CALLS = 8


class Relay:
    """Runs as a job: the user's process speaks to it by app commands, and it speaks to the sites by calls."""

    def __init__(self) -> None:
        die_with_parent()
        no_tensors()
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._sites: dict[str, Any] = {}
        self._given_up: dict[str, str] = {}
        self._calls: dict[str, RelayCall] = {}
        self._pieces: dict[tuple[str, int], bytearray] = {}
        self._threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="fedspan-relay")

    @collab.main
    def main(self) -> None:
        """Serve commands until the user's process ends it, or is not heard of any more."""
        quiet_logs()
        self._sites = {proxy.name: proxy for proxy in collab.clients}
        collab.fl_ctx.get_engine().register_app_command(TOPIC, self._command)
        self._heard = time.monotonic()
        while not self._ended.wait(0.2) and not collab.is_aborted:
            if time.monotonic() - self._heard > IDLE_LIMIT:
                break

    def _command(self, topic: str, data: dict[str, Any], context: Any) -> dict[str, Any]:
        """Answer one command of the user's process, soon."""
        self._heard = time.monotonic()
        what = data["what"]
        if what == "alive":
            return {"sites": sorted(self._sites)}
        if what == "put":
            with self._lock:
                self._pieces.setdefault((data["call"], data["number"]), bytearray()).extend(to_bytes(data["piece"]))
            return {"put": True}
        if what == "send":
            return self._send(data)
        if what == "collect":
            return self._calls[data["call"]].collect(PATIENCE)
        if what == "fetch":
            return self._calls[data["call"]].fetch(data["site"], int(data["start"]))
        if what == "forget":
            self._forget(data["sites"], "its process for this run is gone")
            return {"forgotten": sorted(self._given_up)}
        if what == "end":
            self._ended.set()
            return {"ended": True}
        raise ValueError(f"{what!r} is not a command of a relay")

    def _send(self, data: dict[str, Any]) -> dict[str, Any]:
        """Bring each site its request: ``to`` says which of ``texts``; one that was put in pieces is empty there."""
        name, call = data["call"], RelayCall(float(data["limit"]))
        with self._lock:
            pieces = [self._pieces.pop((name, number), b"") for number in range(len(data["texts"]))]
            self._calls = dict([*self._calls.items(), (name, call)][-KEPT_CALLS:])
        different = [bytes(piece) or to_bytes(text) for piece, text in zip(pieces, data["texts"], strict=True)]
        call.ask(self._threads, {site: different[number] for site, number in data["to"].items()}, self._call)
        call.give_up(self._given_up, "its process for this run is gone")
        return call.collect(float(data["patience"]))

    def _forget(self, sites: list[str], why: str) -> None:
        self._given_up |= dict.fromkeys(sites, why)
        for call in list(self._calls.values()):
            call.give_up(sites, why)

    def _call(self, site: str, request: bytes, limit: float) -> bytes:
        return unpack(self._sites[site](timeout=limit).answer(request=pack(request)))
