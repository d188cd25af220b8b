"""The hub, a part of the coordinator's process: it passes users' bytes on to sites, and each answer on to the user.

It reads none of them: requests and answers are signed, and checked by their receivers. A large answer stays at its site
until the user fetches it through the hub. While a user is connected, the hub probes every site each second. A call to a
site that has stopped or restarted is given up at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from fedspan.engines.nvflare.client.user_session import CHANNEL, SITE_CHANNEL
from fedspan.engines.nvflare.flare import (
    Carry,
    Component,
    EventType,
    Head,
    Message,
    RefusedError,
    carrier,
    cell_of,
    client_of,
    serve,
)
from fedspan.engines.nvflare.server import study_queue
from fedspan.engines.nvflare.setup.console_events import SiteEvents, report
from fedspan.engines.nvflare.setup.kit import read_kit

#: Seconds between two probes of a site, for its answer, and without one after which it counts as silent.
EVERY, LIMIT, SILENT = 1.0, 5.0, 10.0

#: Seconds after which a user that was not heard of is no longer connected, and without progress of a large answer.
IDLE, STALLED = 10.0, 20.0

LATE = "no answer within the deadline"


class HubComponent(Component):  # type: ignore[misc]
    """The hub as a component of NVIDIA FLARE's server."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the hub when the coordinator is up, and report which sites come and go."""
        if study_queue.home is None:
            return
        if event_type == EventType.SYSTEM_START:
            cell, sites = cell_of(fl_ctx), read_kit(study_queue.home).sites
            to_users = carrier(cell, CHANNEL)
            hub = Hub(sites, carrier(cell, SITE_CHANNEL), to_users, carrier(cell, SITE_CHANNEL, stream=True))
            serve(cell, CHANNEL, hub.answer)
            self.events = SiteEvents(sites)
            for watch in (hub.watch, self.events.watch):
                threading.Thread(target=watch, daemon=True, name="fedspan-hub").start()
            report("the coordinator is up")
        elif event_type == EventType.CLIENT_REGISTER_PROCESSED:
            self.events.joined(client_of(fl_ctx))
        elif event_type == EventType.CLIENT_HEARTBEAT_PROCESSED:
            self.events.heard(client_of(fl_ctx))


class Hub:
    """Passes calls on to sites and answers on to users, and knows which sites are there.

    Parameters
    ----------
    sites : collection of str
        All sites of the federation.
    to_sites, to_users : callable
        Send a site or a user a message (see `Carry`).
    fetch : callable
        Sends a site a message whose answer is large.
    """

    def __init__(self, sites: Collection[str], to_sites: Carry, to_users: Carry, fetch: Carry) -> None:
        self.instance = secrets.token_hex(8)  # of this process: calls that an earlier one took are lost
        self.sites = frozenset(sites)
        self._to_sites, self._to_users, self._fetch = to_sites, to_users, fetch
        self._lock = threading.Lock()
        self._instances: dict[str, str] = {}  # of the sites that are there
        self._heard: dict[str, float] = {}
        self._asked: set[str] = set()  # sites that have not answered the last probe yet
        self._waiting: set[tuple[str, str, str]] = set()  # user, call and site of each answer that has not come
        self._user_heard = 0.0
        self._threads = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="fedspan-hub")

    def answer(self, user: str, topic: str, head: Head, body: bytes) -> Message | Future[Message]:
        """Answer a user's process: which sites are there; take its call; or fetch a large answer from a site."""
        if user in self.sites:
            raise RefusedError("a site may not send requests to others")
        first = time.monotonic() - self._user_heard > IDLE
        self._user_heard = time.monotonic()
        if topic == "call":
            self.call(user, head, body)
        elif topic == "fetch":
            message = {"answer": head["answer"]}
            return self._threads.submit(self._fetch, str(head["site"]), "fetch", message, b"", STALLED)
        elif first:
            self.question(LIMIT)
        return {"hub": self.instance, "online": sorted(self._instances)}, b""

    def call(self, user: str, head: Head, body: bytes) -> None:
        """Send each site its part of the body; the user gets a message for each site: its answer, or why it is lost."""
        call, limit = str(head["call"]), float(head["limit"])
        for site, (start, end) in head["to"].items():
            with self._lock:
                self._waiting.add((user, call, site))
            if site in self.sites:
                part = body if (start, end) == (0, len(body)) else bytes(memoryview(body)[start:end])
                self._threads.submit(self._deliver, user, call, site, part, limit)
            else:
                self._settle(user, call, site, {"lost": "the federation has no such site"})

    def watch(self) -> None:
        """Probe the sites again and again, while a user is connected."""
        while True:
            time.sleep(EVERY)
            if time.monotonic() - self._user_heard <= IDLE:
                self.question(0.0)

    def question(self, seconds: float) -> None:
        """Probe all sites but those whose last answer is still missing; wait at most `seconds` for the answers."""
        with self._lock:
            due = self.sites - self._asked
            self._asked |= due
        asked = [self._threads.submit(self._question, site) for site in sorted(due)]
        wait(asked, timeout=seconds)

    def _question(self, site: str) -> None:
        try:
            instance = str(self._to_sites(site, "alive", {}, b"", LIMIT)[0]["instance"])
        except TimeoutError:
            if time.monotonic() - self._heard.get(site, 0.0) > SILENT:
                self._gone(site, "it is silent")
        except Exception:  # of any kind from NVIDIA FLARE: no way leads to the site
            self._gone(site, "it is not connected")
        else:
            if self._instances.get(site, instance) != instance:
                self._gone(site, "it has restarted")
            self._heard[site], self._instances[site] = time.monotonic(), instance
        finally:
            with self._lock:
                self._asked.discard(site)

    def _gone(self, site: str, why: str) -> None:
        if self._instances.pop(site, None) is not None:
            with self._lock:
                lost = [key for key in self._waiting if key[2] == site]
            for user, call, _ in lost:
                self._threads.submit(self._settle, user, call, site, {"lost": why})

    def _deliver(self, user: str, call: str, site: str, request: bytes, limit: float) -> None:
        try:
            head, answer = self._to_sites(site, "call", {"keep": limit}, request, limit)
        except TimeoutError:
            head, answer = {"lost": LATE}, b""
        except Exception as error:  # of any kind from NVIDIA FLARE: this request is lost
            head, answer = {"lost": str(error) or type(error).__name__}, b""
        self._settle(user, call, site, head, answer)

    def _settle(self, user: str, call: str, site: str, head: Head, answer: bytes = b"") -> None:
        """Send the user what came of a site's request, once."""
        with self._lock:
            if (user, call, site) not in self._waiting:
                return
            self._waiting.discard((user, call, site))
        try:
            self._to_users(user, "answer", {**head, "call": call, "site": site}, answer, LIMIT)
        except Exception:  # of any kind: a user that is not there any more needs no answer
            return
