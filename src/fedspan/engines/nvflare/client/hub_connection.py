"""A user's connection to the hub at the coordinator: it logs in again where needed, and knows which sites are online.

One thread watches the hub. What it knows is behind one lock; `NVFlareTransport.send` only looks it up.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from fedspan.engines.members.member_list import kit_list
from fedspan.engines.nvflare.client.user_session import CHANNEL, DeniedError, ServerOfflineError, UserSession, in_thread
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.engines.nvflare.setup.provision import RemovedError, join
from fedspan.engines.remote.coordinator.signed_requests import Lost
from fedspan.errors import FedspanError

#: Seconds between two requests to the hub: while all sites are connected, and while one is missing.
CALM, BUSY = 1.0, 0.25

#: Seconds for the hub's answer to one request.
LIMIT = 6.0

#: Seconds without progress after which a large answer is given up.
FETCH = 30.0

#: Bytes of large answers that are fetched before those of a site whose turn it is, and that has not answered.
AHEAD = 2**26

#: NVIDIA FLARE's name of the server.
SERVER = "server"

LATE = "no answer within the deadline"

_log = logging.getLogger(__name__)

#: A site and its answer, where a large one waits, or why it is missing; without a site: the connection is broken.
_Arrived = tuple[str, bytes | memoryview | dict[str, Any] | str]


def _call_message(call: str, requests: Mapping[str, bytes], limit: float) -> tuple[dict[str, Any], bytes]:
    """Return the head and body of a call; sites with the same request share its bytes, which travel once."""
    starts: dict[int, tuple[int, int]] = {}
    parts: list[bytes] = []
    for request in requests.values():
        if id(request) not in starts:
            start = sum(map(len, parts))
            starts[id(request)] = start, start + len(request)
            parts.append(request)
    to = {site: starts[id(request)] for site, request in requests.items()}
    return {"call": call, "to": to, "limit": limit}, parts[0] if len(parts) == 1 else b"".join(parts)


class HubConnection:
    """Knows the sites that are online, and why the server can't be used now (`trouble`), or refuses this user."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._version = kit_list(kit.path).version  # of the list of participants
        self._changed = threading.Condition(threading.RLock())
        self.trouble: str | None = None
        self.denied: DeniedError | None = None
        self._calls: dict[str, SimpleQueue[_Arrived]] = {}  # those under way
        self._have: list[tuple[str, str]] = []  # large answers that came, of which the hub does not know it yet
        self._session: UserSession | None = self._log_in()  # raises at once where the user is refused
        self._hub = ""
        self._online: frozenset[str] = frozenset()
        self._disabled: dict[str, str] = {}
        self._lost: set[str] = set()  # sites that gave no answer: to be checked before the next request
        self._checks = 0
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fedspan-hub-connection")
        self._thread.start()

    def online(self) -> frozenset[str]:
        """Return the sites that are known to be online."""
        with self._changed:
            return frozenset() if self.trouble else self._online - self._lost

    def why_not(self, site: str) -> str:
        """Return why a site can't be reached."""
        with self._changed:
            if self.trouble:
                return self.trouble
            if site in self._disabled:
                return f"{site}: {self._disabled[site]}"
            return f"{site} is silent" if site in self._online else f"{site} is not connected"

    def wait_for(self, sites: Iterable[str] | None, limit: float, least: float) -> frozenset[str]:
        """Wait until all `sites` can be reached, or `limit` seconds. ``None``: any, and for all of them `least`."""
        wanted = frozenset(self.kit.sites if sites is None else sites)

        def ready() -> bool:
            return self.denied is not None or (self._checks > 0 and wanted <= self.online())

        with self._changed:
            if sites is None:  # sites that have just started show within seconds
                self._changed.wait_for(ready, timeout=min(least, limit))
                self._changed.wait_for(
                    lambda: self.denied is not None or self.online(), timeout=max(0.0, limit - least)
                )
            else:
                self._changed.wait_for(ready, timeout=limit)
            return self.online() & wanted

    def call(
        self, requests: Mapping[str, bytes], seconds: float, way_back: float
    ) -> Iterator[tuple[str, bytes | memoryview | Lost]]:
        """Send requests through the hub; yield each site's answer when it arrives, or why it is missing.

        Large answers wait at their sites, and are fetched one at a time, in the order of `requests`: the caller need
        hold few of later sites. After half of the time, none waits for a site that has not answered. One that takes
        longer than its share of the time no longer holds up the others, so that a slow or malicious site loses no
        answer but its own.
        """
        from fedspan.engines.nvflare.flare import LARGE

        with self._changed:
            session = self._session
        name, why = secrets.token_hex(8), LATE
        arrived: SimpleQueue[_Arrived] = SimpleQueue()
        order = {site: place for place, site in enumerate(requests)}
        waiting, large = dict.fromkeys(requests), dict[str, dict[str, Any]]()
        sizes, current, until = dict[str, int](), "", 0.0  # of those fetched; the last one, and its share of the time
        end = monotonic() + seconds
        half = end - seconds / 2
        self._calls[name] = arrived
        head, body = _call_message(name, requests, max(0.05, seconds - way_back))
        if len(body) <= LARGE:  # NVIDIA FLARE puts it in a queue
            self._hand_over(session, head, body, arrived)
        else:  # in a thread that is left behind if the server dies meanwhile
            in_thread(self._hand_over, session, head, body, arrived)
        del body
        try:
            while waiting:
                now, wake = monotonic(), end
                if large:
                    first = next(iter(waiting))
                    site = first if first in large else min(large, key=order.__getitem__)
                    held = large[site]["size"] + sum(sizes[one] for one in sizes if order[one] > order[first])
                    if now < until:
                        wake = until
                    elif site == first or held <= AHEAD or now >= half:
                        current, until = site, now + max(0.0, end - now) / (2 * len(waiting))
                        sizes[site] = large[site]["size"]
                        in_thread(self._fetch, session, site, large.pop(site), arrived)
                        continue
                    else:
                        wake = half
                try:
                    site, answer = arrived.get(timeout=max(0.0, wake - now))
                except Empty:
                    if wake < end:
                        continue
                    break
                if not site:  # the connection is broken: no further answer comes
                    why = str(answer)
                    break
                if site not in waiting:
                    continue
                if isinstance(answer, dict):
                    large[site] = answer
                    continue
                del waiting[site]
                until = 0.0 if site == current else until
                if not isinstance(answer, str):
                    yield site, answer
                else:
                    sizes.pop(site, None)
                    self._give_up({site})
                    yield site, Lost(answer)
                del answer  # a message, which only the caller may keep
        finally:
            del self._calls[name]
        self._give_up(set(waiting))
        yield from ((site, Lost(why)) for site in sorted(waiting))

    def _give_up(self, sites: set[str]) -> None:
        if sites:
            with self._changed:
                self._lost |= sites
            self._nudge.set()

    def _hand_over(
        self, session: UserSession | None, head: dict[str, Any], body: bytes, arrived: SimpleQueue[_Arrived]
    ) -> None:
        """Send the hub a call."""
        try:
            if session is None:
                raise ServerOfflineError(self.trouble or "there is no session with the federation's server")
            # A refusal of a small one is seen by the next check.
            session.request(CHANNEL, "call", head, body, head["limit"], one_way=True)
        except Exception as error:  # of any kind from NVIDIA FLARE: this call is lost, and the server is checked
            known = isinstance(error, FedspanError | ConnectionError)
            arrived.put(("", str(error) if known else f"no connection to the server: {type(error).__name__}"))

    def _fetch(self, session: UserSession, site: str, head: dict[str, Any], arrived: SimpleQueue[_Arrived]) -> None:
        """Fetch a large answer, and let the hub free those that came before."""
        from fedspan.engines.nvflare.flare import taken

        have, self._have = self._have, []
        message = {"site": site, "answer": head["answer"], "have": have}
        try:
            body = session.request(CHANNEL, "fetch", message, b"", FETCH, stream=True)[1]
            answer = taken(body)
            del body
            self._have.append((site, head["answer"]))
            arrived.put((site, answer))
        except Exception as error:  # of any kind from NVIDIA FLARE
            arrived.put((site, f"its answer could not be fetched: {error}"))

    def _take(self, sender: str, topic: str, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Take a site's answer from the hub, the place where it waits, or why it is missing."""
        arrived = self._calls.get(str(head["call"]))
        if arrived is not None and sender == SERVER:
            large = {"answer": head["answer"], "size": max(0, int(head["size"]))} if "answer" in head else None
            arrived.put((str(head["site"]), str(head["lost"]) if "lost" in head else large or bytes(body)))
        return {}, b""

    def stop(self) -> None:
        """End the thread and the session."""
        self._stop.set()
        self._nudge.set()
        self._thread.join(timeout=LIMIT)
        with self._changed:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._check()
            except DeniedError as error:
                self.denied = error
                self._server_offline(str(error))
                return
            except FedspanError as error:
                self._server_offline(str(error))
            except Exception:  # NVIDIA FLARE may raise anything; the connection must survive it
                _log.exception("a check of the federation's server failed")
                self._server_offline("the federation's server gave an invalid answer")
            with self._changed:
                calm = not self.trouble and self._online >= set(self.kit.sites)
            self._nudge.wait(CALM if calm else BUSY)
            self._nudge.clear()

    def _check(self) -> None:
        with self._changed:
            session, lost = self._session, set(self._lost)
        if session is None:
            session = self._log_in()
            with self._changed:
                self._session = session
        answer, members = session.request(CHANNEL, "online", {"version": self._version}, b"", LIMIT)
        if members:
            self._follow(bytes(members))
        if "denied" in answer:
            raise DeniedError(f"the federation's server refuses: {answer['denied']}")
        hub, online = str(answer["hub"]), frozenset(map(str, answer["online"])) & set(self.kit.sites)
        with self._changed:
            if self._hub not in ("", hub):
                self._release("the federation's server has restarted")
            self._hub, self._online, self.trouble = hub, online, None
            self._disabled = {str(site): str(why) for site, why in answer["disabled"].items()}
            self._lost -= lost
            self._checks += 1
            self._changed.notify_all()

    def _log_in(self) -> UserSession:
        session = UserSession(self.kit)
        session.serve(CHANNEL, self._take)
        return session

    def _follow(self, data: bytes) -> None:
        """Install the list of participants that the coordinator hands out: all that reads the kit follows it."""
        try:
            self._version = join(self.kit.path, data).version
            self.kit = read_kit(self.kit.path)
        except RemovedError as error:
            raise DeniedError(f"this user has left the federation: {error}") from None
        except (FedspanError, OSError):
            _log.exception("a list of participants could not be installed")

    def _release(self, why: str) -> None:
        """Release the calls under way: their answers can't arrive any more."""
        for arrived in list(self._calls.values()):
            arrived.put(("", why))

    def _server_offline(self, trouble: str) -> None:
        with self._changed:
            self.trouble, self._hub = trouble, ""
            session, self._session = self._session, None
            self._release(trouble)
            self._changed.notify_all()
        if session is not None:
            threading.Thread(target=session.close, daemon=True).start()
