"""The transport over NVIDIA FLARE: a user's session, the hub at the coordinator, a link at each site."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fedspan.engines.nvflare.client.hub_connection import HubConnection
from fedspan.engines.nvflare.setup.kit import needs_nvflare, read_kit
from fedspan.engines.remote.coordinator.signed_requests import Lost

#: Seconds of a request's deadline that are kept for the answer's way back from the server.
WAY_BACK = 0.1

#: Seconds that a new connection waits for sites that have not connected yet.
NO_SITES = 8.0


class NVFlareTransport:
    """A user's connection to the sites of a federation (see `Transport`).

    Opening it logs in. It survives when any other participant's process ends.
    """

    def __init__(self, kit: str | Path) -> None:
        needs_nvflare()
        opened = read_kit(kit)
        opened.must_be("user", "connecting")
        self._hub = HubConnection(opened)
        self._closed = weakref.finalize(self, HubConnection.stop, self._hub)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""
        return self._hub.kit.sites

    def online(self) -> frozenset[str]:
        """Return the sites that are known to be online, without waiting."""
        return self._hub.online()

    def wait_for(self, sites: Iterable[str] | None, limit: float) -> frozenset[str]:
        """Wait at most `limit` seconds until `sites`, or some of all, can be reached; return those that can.

        Raises an error where the server refuses this user.
        """
        found = self._hub.wait_for(sites, limit, NO_SITES)
        if self._hub.denied is not None:
            raise self._hub.denied
        return found

    def why_not(self, site: str) -> str:
        """Return why a site can't be reached."""
        return self._hub.why_not(site)

    def send(self, requests: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes | memoryview | Lost]]:
        """Deliver each site its request; yield its answer when it arrives, or why it is missing, within `deadline`.

        Raises an error where the server refuses this user: waiting does not help.
        """
        if self._hub.denied is not None:
            raise self._hub.denied
        online = self.online()
        yield from ((site, Lost(self._hub.why_not(site))) for site in requests if site not in online)
        ready = {site: request for site, request in requests.items() if site in online}
        if ready:
            yield from self._hub.call(ready, deadline, WAY_BACK)

    def close(self) -> None:
        """Log out."""
        self._closed()
