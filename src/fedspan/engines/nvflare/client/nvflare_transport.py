"""The transport over NVIDIA FLARE: a user's session, relays on the server, a process at each site."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.client.relay_monitor import RelayMonitor
from fedspan.engines.nvflare.client.relays import RelayJob
from fedspan.engines.nvflare.client.user_session import TOPIC, ServerOfflineError, in_thread
from fedspan.engines.nvflare.setup.kit import needs_nvflare, read_kit
from fedspan.engines.remote.coordinator.signed_requests import Lost

#: Seconds of a request's deadline that are kept for the answer's way back from the server.
WAY_BACK = 0.1
LATE = "no answer within the deadline"


class NVFlareTransport:
    """A user's connection to the sites of a federation (see `Transport`).

    Opening it logs in and starts a relay for the sites that are online. It survives the death of any other participant.
    """

    def __init__(self, kit: str | Path) -> None:
        needs_nvflare()
        self._kit = read_kit(kit)
        self._kit.must_be("user", "connecting")
        self._monitor = RelayMonitor(self._kit)
        self._closed = weakref.finalize(self, RelayMonitor.stop, self._monitor)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""
        return self._kit.sites

    def online(self) -> frozenset[str]:
        """Return the sites that can be reached by what is known now, without waiting."""
        return self._monitor.online()

    def wait_for(self, sites: Iterable[str] | None, limit: float) -> frozenset[str]:
        """Wait at most `limit` seconds until `sites`, or all connected ones, can be reached; return those that can.

        Raises an error where the server refuses this user.
        """
        found = self._monitor.wait_for(sites, limit)
        if self._monitor.denied is not None:
            raise self._monitor.denied
        return found

    def why_not(self, site: str) -> str:
        """Return why a site can't be reached."""
        return self._monitor.why_not(site)

    def send(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Lost]:
        """Deliver each site its request and return its answer, or why there is none, within `deadline` seconds."""
        end = time.monotonic() + deadline
        answers: dict[str, bytes | Lost] = {}
        by_relay: dict[RelayJob, dict[str, bytes]] = {}
        for site, request in requests.items():
            relay = self._monitor.relay_to(site)
            if relay is None:
                answers[site] = Lost(self._monitor.why_not(site))
            else:
                by_relay.setdefault(relay, {})[site] = request
        # In threads that are left behind if the server dies meanwhile.
        sent = {relay: in_thread(self._deliver, relay, part, end) for relay, part in by_relay.items()}
        for relay, done in sent.items():
            arrived, lost = _outcome(relay, by_relay[relay], done, end)
            self._monitor.suspect(relay, lost)
            answers |= arrived
            answers |= {site: Lost(f"{site}: {why}") for site, why in lost.items()}
        return answers

    def _deliver(self, relay: RelayJob, requests: Mapping[str, bytes], end: float) -> dict[str, Any]:
        """Send requests through one relay, and return what it answers."""
        numbers: dict[int, int] = {}  # sites with the same request share its bytes, which travel once
        to = {site: numbers.setdefault(id(request), len(numbers)) for site, request in requests.items()}
        different = {to[site]: request for site, request in requests.items()}
        session, left = self._monitor.session(), end - time.monotonic()
        shared = [different[number] for number in sorted(different)]
        message = {"to": to, "requests": shared, "limit": max(0.05, left - WAY_BACK)}
        return session.request(TOPIC, message, left + 1.0, relay.job)

    def close(self) -> None:
        """End the relays and log out."""
        self._closed()


def _outcome(
    relay: RelayJob, requests: Mapping[str, bytes], done: Future[dict[str, Any]], end: float
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Wait for the answers of one relay; return those that arrived, and why the others did not."""
    either: tuple[Future[Any], Future[Any]] = (done, relay.ended)
    wait(either, timeout=max(0.0, end - time.monotonic()), return_when=FIRST_COMPLETED)
    result: dict[str, Any] = {"answers": {}, "lost": {}}
    why = LATE
    if done.done():
        error = done.exception()
        if error is None:
            result = done.result()
        else:  # of any kind from NVIDIA FLARE: this request is lost, and its sites are checked
            offline = isinstance(error, ServerOfflineError)
            why = str(error) if offline else f"no connection to the server: {type(error).__name__}"
    elif relay.ended.done():
        why = relay.ended.result()
    arrived = {site: bytes(answer) for site, answer in result["answers"].items() if site in requests}
    return arrived, {site: str(result["lost"].get(site, why)) for site in requests if site not in arrived}
