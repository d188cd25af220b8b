"""The hub, a part of the coordinator's process: it passes users' bytes on to sites and returns the answers.

It reads none of them: requests and answers are signed, and checked by their receivers. While a user is connected, the
hub probes every site each second. A call to a site that has stopped or restarted is given up at once.

It hands the signed list of participants to sites and users, before it passes anything else on to them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent

from fedspan.engines.nvflare.client.user_session import CHANNEL, SITE_CHANNEL
from fedspan.engines.nvflare.server import admittance as admittances
from fedspan.engines.nvflare.server import study_queue
from fedspan.engines.nvflare.server.admittance import Admittance
from fedspan.engines.nvflare.server.state_file import keep_state
from fedspan.errors import MessageError

#: Seconds between two probes of a site, for its answer, and without one after which it counts as silent.
EVERY, LIMIT, SILENT = 1.0, 5.0, 10.0

#: Seconds after which a user that was not heard of is no longer connected.
IDLE = 10.0

LATE = "no answer within the deadline"

#: Sends a site bytes under a topic, within a number of seconds; raises a `ConnectionError` or a `TimeoutError`.
Carry = Callable[[str, str, bytes, float], bytes]


class HubComponent(FLComponent):  # type: ignore[misc]
    """The hub as a component of NVIDIA FLARE's server."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the hub when the coordinator is up."""
        if event_type == EventType.SYSTEM_START and study_queue.home is not None:
            engine = fl_ctx.get_engine()
            cell, admittance = engine.get_cell(), Admittance(study_queue.home)
            admittances.install(engine.server, admittance)
            hub = Hub(admittance, cell_carry(cell))
            cell.register_request_cb(channel=CHANNEL, topic="*", cb=hub.request)
            threading.Thread(target=hub.watch, daemon=True, name="fedspan-hub").start()
            state = (study_queue.home, engine, admittance)
            threading.Thread(target=keep_state, args=state, daemon=True, name="fedspan-state").start()


def cell_carry(cell: Any) -> Carry:
    """Return what sends bytes to a site through NVIDIA FLARE."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    def carry(site: str, topic: str, request: bytes, limit: float) -> bytes:
        reply = cell.send_request(
            channel=SITE_CHANNEL, topic=topic, target=site, request=new_cell_message({}, request), timeout=limit,
            optional=True,
        )  # fmt: skip
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.TIMEOUT:
            raise TimeoutError
        if code not in (None, ReturnCode.OK) or not isinstance(reply.payload, bytes | bytearray | memoryview):
            raise ConnectionError(str(reply.get_header(MessageHeaderKey.ERROR) or code))
        return bytes(reply.payload)

    return carry


class Hub:
    """Passes calls on to sites, and knows which of them are there.

    Parameters
    ----------
    admittance : Admittance
        Knows the participants, and who is behind a connection.
    carry : callable
        Sends a site bytes (see `Carry`).
    """

    def __init__(self, admittance: Admittance, carry: Carry) -> None:
        self.instance = secrets.token_hex(8)  # of this process: calls that an earlier one took are lost
        self._admittance = admittance
        self._carry = carry
        self._versions: dict[str, int] = {}  # by site: of the list that it has
        self._lock = threading.Lock()
        self._instances: dict[str, bytes] = {}  # of the sites that are there
        self._heard: dict[str, float] = {}
        self._asked: set[str] = set()  # sites that have not answered the last probe yet
        self._informed: set[str] = set()  # sites that are being handed the list
        self._calls: set[HubCall] = set()
        self._user_heard = 0.0
        self._threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="fedspan-hub")

    def request(self, message: Any) -> Any:
        """Answer a user's process: which sites are there, or the answers of sites to its requests."""
        from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
        from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message

        data = message.payload
        try:
            user = self._admittance.user(str(message.get_header(MessageHeaderKey.ORIGIN)))
        except MessageError as error:  # the list shows it to the user as well
            return new_cell_message({}, {"denied": str(error), "members": self._admittance.list_bytes})
        if user is None:
            return make_reply("unauthenticated", "only a user that has logged in may send requests")
        reply: Future[Any] = Future()
        first = time.monotonic() - self._user_heard > IDLE
        self._user_heard = time.monotonic()
        if "to" not in data:
            if first:
                self.question(LIMIT)
            return new_cell_message({}, self._about(int(data.get("version", -1))))
        if why := self._admittance.may_call(user):
            return new_cell_message({}, {"answers": {}, "lost": dict.fromkeys(map(str, data["to"]), why)})
        requests = {str(site): bytes(data["requests"][number]) for site, number in data["to"].items()}
        call = self.call(requests, float(data["limit"]))
        call.result.add_done_callback(lambda done: reply.set_result(new_cell_message({}, done.result())))
        return reply

    def _about(self, version: int) -> dict[str, Any]:
        """Return which sites are there, and the list of participants where a user has another version."""
        disabled = self._admittance.disabled
        online = [site for site in sorted(self._instances) if site in self._admittance.sites and site not in disabled]
        about = {"hub": self.instance, "online": online, "disabled": disabled}
        return about if version == self._admittance.version else about | {"members": self._admittance.list_bytes}

    def call(self, requests: Mapping[str, bytes], limit: float) -> HubCall:
        """Send each site its request; the result follows when each has answered, failed, or been given up."""
        call = HubCall(requests)
        with self._lock:
            self._calls.add(call)
        call.result.add_done_callback(lambda done: self._calls.discard(call))
        disabled, sites = self._admittance.disabled, self._admittance.sites
        for site in requests:
            if site in disabled:
                call.lose(site, disabled[site])
            elif site in sites:
                self._threads.submit(self._deliver, call, site, requests[site], limit)
            else:
                call.lose(site, "the federation has no such site")
        return call

    def watch(self) -> None:
        """Probe the sites again and again, while a user is connected, and hand out the list."""
        while True:
            time.sleep(EVERY)
            if time.monotonic() - self._user_heard <= IDLE:
                self.question(0.0)
            self.hand_out()
            self._admittance.warn()

    def hand_out(self) -> None:
        """Hand the newest list, and what is to be shown on a site's screen, to the sites that lack it."""
        version, notices = self._admittance.version, self._admittance.notices
        with self._lock:
            known = self._admittance.sites | self._versions.keys()  # also those that were removed
            due = {site for site in known if self._versions.get(site) != version or site in notices} - self._informed
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
            self._carry(site, "notice", notice.encode(), LIMIT)
            self._admittance.notices.pop(site, None)
        if self._versions.get(site) != version:
            self._carry(site, "members", self._admittance.list_bytes, LIMIT)
            self._versions[site] = version
            if site not in self._admittance.sites:
                del self._versions[site]  # it was removed, and has been informed of it

    def question(self, wait: float) -> None:
        """Probe all sites but those whose last answer is still missing; wait at most `wait` seconds for the answers."""
        with self._lock:
            due = self._admittance.sites - self._asked
            self._asked |= due
        asked = [self._threads.submit(self._question, site) for site in sorted(due)]
        until = time.monotonic() + wait
        for one in asked if wait else ():
            one.exception(timeout=max(0.01, until - time.monotonic()))

    def _question(self, site: str) -> None:
        try:
            instance = self._carry(site, "alive", b"", LIMIT)
        except TimeoutError:
            if time.monotonic() - self._heard.get(site, 0.0) > SILENT:
                self._gone(site, "it is silent")
        except Exception:  # of any kind from NVIDIA FLARE: no way leads to the site
            self._gone(site, "it is not connected")
        else:
            if self._instances.get(site, instance) != instance:
                self._gone(site, "it has restarted")
                self._versions.pop(site, None)
            self._heard[site], self._instances[site] = time.monotonic(), instance
        finally:
            with self._lock:
                self._asked.discard(site)

    def _gone(self, site: str, why: str) -> None:
        if self._instances.pop(site, None) is not None:
            with self._lock:
                calls = list(self._calls)
            for call in calls:
                call.lose(site, why)

    def _deliver(self, call: HubCall, site: str, request: bytes, limit: float) -> None:
        try:
            self.inform(site)
            call.answered(site, self._carry(site, "call", request, limit))
        except TimeoutError:
            call.lose(site, LATE)
        except Exception as error:  # of any kind from NVIDIA FLARE: this request is lost
            call.lose(site, str(error) or type(error).__name__)


class HubCall:
    """A call to several sites: `result` is set as soon as each has answered, failed, or been given up."""

    def __init__(self, sites: Collection[str]) -> None:
        self.result: Future[dict[str, Any]] = Future()
        self._lock = threading.Lock()
        self._waiting = set(sites)
        self._answers: dict[str, bytes] = {}
        self._lost: dict[str, str] = {}

    def answered(self, site: str, answer: bytes) -> None:
        """Take a site's answer, unless the site was given up."""
        with self._lock:
            if site in self._waiting:
                self._waiting.discard(site)
                self._answers[site] = answer
        self._finish()

    def lose(self, site: str, why: str) -> None:
        """Wait for a site no longer."""
        with self._lock:
            if site in self._waiting:
                self._waiting.discard(site)
                self._lost[site] = why
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            over = not self._waiting and not self.result.done()
        if over:
            self.result.set_result({"answers": self._answers, "lost": self._lost})
