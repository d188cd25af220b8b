"""The hub, a part of the coordinator's process: it passes users' bytes on to sites, and each answer on to the user.

It reads none of them: requests and answers are signed, and checked by their receivers. A large answer stays at its site
until the user fetches it through the hub. The hub probes every site, each second while a user is connected. It reports
which sites come and go. A call to a site that has stopped or restarted is given up at once.

It hands the signed list of participants to sites and users, before it passes anything else on to them.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from fedspan.engines.nvflare.client.user_session import CHANNEL, SITE_CHANNEL
from fedspan.engines.nvflare.flare import (
    Carry,
    Component,
    EventType,
    Head,
    Message,
    RefusedError,
    before_registering,
    carrier,
    cell_of,
    is_large,
    release,
    serve,
)
from fedspan.engines.nvflare.server import study_queue
from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.setup.console_events import report
from fedspan.engines.nvflare.setup.kit import write_json
from fedspan.errors import FedspanError, MessageError

#: Seconds between two probes of a site, between two while no user is connected, for the answer, and without one after
#: which a site counts as silent.
EVERY, CALM, LIMIT, SILENT = 1.0, 5.0, 5.0, 10.0

#: Seconds after which a user that was not heard of is no longer connected, and without progress of a large answer.
IDLE, STALLED = 10.0, 20.0

LATE = "no answer within the deadline"


class HubComponent(Component):  # type: ignore[misc]
    """The hub as a component of NVIDIA FLARE's server."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the hub when the coordinator is up."""
        if event_type == EventType.SYSTEM_START and study_queue.home is not None:
            cell, admittance = cell_of(fl_ctx), Admittance(study_queue.home)
            before_registering(fl_ctx, admittance)
            to_sites, to_users = carrier(cell, SITE_CHANNEL), carrier(cell, CHANNEL, one_way=True)
            hub = Hub(admittance, to_sites, to_users, carrier(cell, SITE_CHANNEL, stream=True))
            admittance.joined = hub.joined
            serve(cell, CHANNEL, hub.answer)
            threading.Thread(target=hub.watch, daemon=True, name="fedspan-hub").start()
            report("the coordinator is up")


class Hub:
    """Passes calls on to sites and answers on to users, and knows which sites are there.

    Parameters
    ----------
    admittance : Admittance
        Knows the participants, and who is behind a connection.
    to_sites, to_users : callable
        Send a site or a user a message (see `Carry`).
    fetch : callable
        Sends a site a message whose answer is large.
    """

    def __init__(self, admittance: Admittance, to_sites: Carry, to_users: Carry, fetch: Carry) -> None:
        self.instance = secrets.token_hex(8)  # of this process: calls that an earlier one took are lost
        self._admittance = admittance
        self._to_sites, self._to_users, self._fetch = to_sites, to_users, fetch
        self._known = set(admittance.sites)  # also sites that were removed, until they are informed of it
        self._versions: dict[str, int] = {}  # by site: of the list that it has
        self._lock = threading.Lock()
        self._instances: dict[str, str] = {}  # of the connected sites
        self._heard: dict[str, float] = {}
        self._limits: dict[str, float] = {}  # seconds for the answer of a site that is not connected, if not `EVERY`
        self._missing: set[str] = set()  # sites that were here, and are not reported to be back
        self._asked: set[str] = set()  # sites that have not answered the last probe yet
        self._informed: set[str] = set()  # sites that are being handed the list
        self._waiting: set[tuple[str, str, str]] = set()  # user, call and site of each answer that has not come
        self._passed_on: dict[tuple[str, ...], weakref.ref[Any]] = {}  # large answers, by user, site and name
        self._user_heard = 0.0
        self._threads = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="fedspan-hub")

    def answer(self, origin: str, topic: str, head: Head, body: bytes) -> Message | Future[Message]:
        """Answer a user's process: which sites are there; take its call; or fetch a large answer from a site."""
        try:
            user = self._admittance.user(origin)
        except MessageError as error:  # the list shows it to the user as well
            return {"denied": str(error)}, self._admittance.list_bytes
        if user is None:
            raise RefusedError("only a user that has logged in may send requests")
        first, self._user_heard = not self._is_used(), time.monotonic()
        if topic == "online":
            if first:
                self.question(LIMIT)
            return self._about(int(head.get("version", -1)))
        if why := self._admittance.may_call(user):
            raise RefusedError(why)
        if topic == "fetch":
            return self._threads.submit(
                self._fetched, origin, str(head["site"]), str(head["answer"]), head.get("have", [])
            )
        self.call(origin, head, body)
        return {}, b""

    def _fetched(self, user: str, site: str, name: str, have: list[list[str]]) -> Message:
        """Return a large answer of a site; free those that the user has."""
        for one in have:
            if (known := self._passed_on.pop((user, *map(str, one)), None)) is not None:
                release(known())
        head, answer = self._fetch(site, "fetch", {"answer": name}, b"", STALLED)
        if is_large(answer):
            self._passed_on[user, site, name] = weakref.ref(answer)
        return head, answer

    def _about(self, version: int) -> Message:
        """Return which sites are there, and the list of participants where a user has another version."""
        disabled = self._admittance.disabled
        online = [site for site in self._online() if site not in disabled]
        about = {"hub": self.instance, "online": online, "disabled": disabled}
        return about, b"" if version == self._admittance.version else self._admittance.list_bytes

    def call(self, user: str, head: Head, body: bytes) -> None:
        """Send each site its part of the body; the user gets a message for each site: its answer, or why it is lost."""
        call, limit = str(head["call"]), float(head["limit"])
        disabled, sites = self._admittance.disabled, self._admittance.sites
        under_way = []
        for site, (start, end) in head["to"].items():
            with self._lock:
                self._waiting.add((user, call, site))
            if site in sites and site not in disabled:
                part = body if (start, end) == (0, len(body)) else bytes(memoryview(body)[start:end])
                under_way.append(self._threads.submit(self._deliver, user, call, site, part, limit))
            else:
                why = disabled.get(site, "the federation has no such site")
                self._threads.submit(self._settle, user, call, site, {"lost": why})
        if is_large(body):  # free it as soon as all sites have it
            self._threads.submit(lambda: release(body if all(one.result() for one in under_way) else b""))

    def watch(self) -> None:
        """Probe the sites again and again, hand out the list, and write down who is here."""
        probed = 0.0
        while True:
            time.sleep(EVERY)
            with suppress(FedspanError, OSError):  # a full disk, or a damaged file, does not end the coordinator
                if self._is_used() or time.monotonic() - probed > CALM:
                    probed = time.monotonic()
                    self.question(0.0)
                    write_json(self._admittance.kit / "online.json", self.state())
                self.hand_out()
                self._admittance.warn()
                self._admittance.repair()

    def state(self) -> dict[str, Any]:
        """Return what the coordinator's page shows: the sites that are here, each with the version that it states."""
        known = self._admittance
        online = {site: known.site_versions.get(site, "") for site in self._online()}
        return {"when": time.time(), "sites": sorted(known.sites), "online": online, "disabled": known.disabled}

    def joined(self, site: str) -> None:
        """Report a site that has registered."""
        self._missing.discard(site)
        report(f"{site} joined")

    def _online(self) -> list[str]:
        return sorted(self._admittance.sites.intersection(list(self._instances)))

    def _is_used(self) -> bool:
        """Return whether a user is connected."""
        return time.monotonic() - self._user_heard <= IDLE

    def hand_out(self) -> None:
        """Hand the newest list, and what is to be shown on a site's screen, to the sites that lack it."""
        version, notices = self._admittance.version, self._admittance.notices
        with self._lock:
            self._known |= self._admittance.sites
            due = {site for site in self._known if self._versions.get(site) != version or site in notices}
            due -= self._informed
            self._informed |= due
        for site in sorted(due):
            self._threads.submit(self._hand_to, site)

    def _hand_to(self, site: str) -> None:
        try:
            self.inform(site)
        except Exception:  # of any kind from NVIDIA FLARE: the site gets it when it is back
            time.sleep(EVERY)
        finally:
            with self._lock:
                self._informed.discard(site)

    def inform(self, site: str) -> None:
        """Hand a site the newest list, if it has another one; raise an error where it can't be reached."""
        version = self._admittance.version
        if notice := self._admittance.notices.get(site, ""):
            self._to_sites(site, "notice", {}, notice.encode(), LIMIT)
            self._admittance.notices.pop(site, None)
        if self._versions.get(site) != version:
            self._to_sites(site, "members", {}, self._admittance.list_bytes, LIMIT)
            self._versions[site] = version
            if site not in self._admittance.sites:
                del self._versions[site]  # it was removed, and has been informed of it
                self._known.discard(site)

    def question(self, seconds: float) -> None:
        """Probe all sites but those whose last answer is still missing; wait at most `seconds` for the answers."""
        with self._lock:
            due = self._admittance.sites - self._asked
            self._asked |= due
        asked = [self._threads.submit(self._question, site) for site in sorted(due)]
        wait(asked, timeout=seconds)

    def _question(self, site: str) -> None:
        # A site that is just connecting does not answer yet: it is probed again soon, and on a busy machine less often.
        limit = LIMIT if site in self._instances else self._limits.get(site, EVERY)
        try:
            instance = str(self._to_sites(site, "alive", {"used": self._is_used()}, b"", limit)[0]["instance"])
        except TimeoutError:
            self._limits[site] = min(2.0 * limit, LIMIT)
            if time.monotonic() - self._heard.get(site, 0.0) > SILENT:
                self._missed(site, "is silent")
        except Exception:  # of any kind from NVIDIA FLARE: no way leads to the site
            self._missed(site, "is not connected")
        else:
            if self._instances.get(site, instance) != instance:
                self._gone(site, "it has restarted")
                self._versions.pop(site, None)
            self._heard[site], self._instances[site] = time.monotonic(), instance
            self._limits.pop(site, None)
            if site in self._missing:
                self._missing.discard(site)
                report(f"{site} is back")
        finally:
            with self._lock:
                self._asked.discard(site)

    def _missed(self, site: str, why: str) -> None:
        """Report that a site is no longer here, and give its calls up."""
        if site in self._instances:
            self._missing.add(site)
            report(f"{site} {why}")
            self._gone(site, f"it {why}")

    def _gone(self, site: str, why: str) -> None:
        if self._instances.pop(site, None) is not None:
            with self._lock:
                lost = [key for key in self._waiting if key[2] == site]
            for user, call, _ in lost:
                self._threads.submit(self._settle, user, call, site, {"lost": why})

    def _deliver(self, user: str, call: str, site: str, request: bytes, limit: float) -> bool:
        """Send a site its request, and the user what came of it; return whether the site has answered."""
        try:
            self.inform(site)
            head, answer = self._to_sites(site, "call", {"keep": limit}, request, limit)
        except TimeoutError:
            head, answer = {"lost": LATE}, b""
        except Exception as error:  # of any kind from NVIDIA FLARE: this request is lost
            head, answer = {"lost": str(error) or type(error).__name__}, b""
        self._settle(user, call, site, head, answer)
        return "lost" not in head

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
