"""A user's connection to the hub at the coordinator: it logs in again where needed, and knows which sites are online.

One thread watches the hub. What it knows is behind one lock; `NVFlareTransport.send` only looks it up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from fedspan.engines.members.member_list import kit_list
from fedspan.engines.nvflare.client.user_session import (
    CHANNEL,
    COMMAND_LIMIT,
    DeniedError,
    ServerOfflineError,
    UserSession,
    in_thread,
)
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.engines.nvflare.setup.provision import RemovedError, join
from fedspan.errors import FedspanError

#: Seconds between two requests to the hub: while all is well, and while something is missing.
CALM, BUSY = 1.0, 0.25

#: Seconds for the hub's answer to one request.
LIMIT = 6.0

LATE = "no answer within the deadline"

_log = logging.getLogger(__name__)


class HubConnection:
    """Knows the sites that are online, and why the server can't be used now (`trouble`), or refuses this user."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._version = kit_list(kit.path).version  # of the list of participants
        self._changed = threading.Condition(threading.RLock())
        self.trouble: str | None = None
        self.denied: DeniedError | None = None
        self._session: UserSession | None = UserSession(kit)  # raises at once where the user is refused
        self._broken: Future[str] = Future()  # set when the calls under way are lost
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
        """Return the sites that can be reached by what is known now."""
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
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Send requests through the hub; return the answers that arrived in time, and why the others did not."""
        with self._changed:
            session, broken = self._session, self._broken
        if session is None:
            return {}, dict.fromkeys(requests, self.trouble or "there is no session with the federation's server")
        numbers: dict[int, int] = {}  # sites with the same request share its bytes, which travel once
        to = {site: numbers.setdefault(id(request), len(numbers)) for site, request in requests.items()}
        different = {to[site]: request for site, request in requests.items()}
        shared = [different[number] for number in sorted(different)]
        message = {"to": to, "requests": shared, "limit": max(0.05, seconds - way_back)}
        # In a thread that is left behind if the server dies meanwhile.
        done = in_thread(session.request, CHANNEL, message, seconds + 1.0)
        both: tuple[Future[Any], Future[Any]] = (done, broken)
        wait(both, timeout=max(0.0, seconds), return_when=FIRST_COMPLETED)
        result: dict[str, Any] = {"answers": {}, "lost": {}}
        why = LATE
        if done.done():
            error = done.exception()
            if error is None:
                result = done.result()
            else:  # of any kind from NVIDIA FLARE: this request is lost, and the server is checked
                offline = isinstance(error, ServerOfflineError)
                why = str(error) if offline else f"no connection to the server: {type(error).__name__}"
        elif broken.done():
            why = broken.result()
        arrived = {site: bytes(answer) for site, answer in result["answers"].items() if site in requests}
        lost = {site: str(result["lost"].get(site, why)) for site in requests if site not in arrived}
        if lost:
            with self._changed:
                self._lost |= set(lost)
            self._nudge.set()
        return arrived, lost

    def stop(self) -> None:
        """End the thread and the session."""
        self._stop.set()
        self._nudge.set()
        self._thread.join(timeout=COMMAND_LIMIT)
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
            except Exception:  # of any kind from NVIDIA FLARE: the connection goes on
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
            session = UserSession(self.kit)
            with self._changed:
                self._session = session
        answer = session.request(CHANNEL, {"version": self._version}, LIMIT)
        if "members" in answer:
            self._follow(bytes(answer["members"]))
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

    def _follow(self, data: bytes) -> None:
        """Install the list of participants that the coordinator hands out: all that reads the kit follows it."""
        try:
            self._version = join(self.kit.path, data).members.version
            self.kit = read_kit(self.kit.path)
        except RemovedError as error:
            raise DeniedError(f"this user has left the federation: {error}") from None
        except (FedspanError, OSError):
            _log.exception("a list of participants could not be installed")

    def _release(self, why: str) -> None:
        """Release the calls under way: their answers can't arrive any more."""
        self._broken.set_result(why)
        self._broken = Future()

    def _server_offline(self, trouble: str) -> None:
        with self._changed:
            self.trouble, self._hub = trouble, ""
            session, self._session = self._session, None
            self._release(trouble)
            self._changed.notify_all()
        if session is not None:
            threading.Thread(target=session.close, daemon=True).start()
