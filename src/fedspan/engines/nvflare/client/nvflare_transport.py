"""Bytes to sites and back through NVIDIA FLARE: a user's session, relays on the server, a process at each site."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedspan.engines.nvflare.client.relay_monitor import Keeper
from fedspan.engines.nvflare.client.relay_request import Call
from fedspan.engines.nvflare.client.relays import RelayJob
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.nvflare.setup.requirements import needs_nvflare
from fedspan.engines.remote.messages.transport import Lost


class NVFlareTransport:
    """The way from a user's process to the sites of a federation (see `fedspan.engines.remote.messages.transport`).

    Opening it logs in and starts a relay for the sites that are there; it survives the death of any other participant.
    """

    def __init__(self, kit: str | Path) -> None:
        needs_nvflare()
        self._kit = read_kit(kit)
        self._kit.must_be("user", "connecting")
        self._keeper = Keeper(self._kit)
        self._closed = weakref.finalize(self, Keeper.stop, self._keeper)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""
        return self._kit.sites

    def online(self) -> frozenset[str]:
        """Return the sites that could be reached now, as far as is known, without waiting."""
        return self._keeper.online()

    def wait_for(self, sites: Iterable[str] | None, limit: float) -> frozenset[str]:
        """Wait at most `limit` seconds until `sites` can be reached, or all that are connected; return those that can.

        Raises what the server says where it refuses this user.
        """
        found = self._keeper.wait_for(sites, limit)
        if self._keeper.denied is not None:
            raise self._keeper.denied
        return found

    def why_not(self, site: str) -> str:
        """Say why a site cannot be reached."""
        return self._keeper.why_not(site)

    def send(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Lost]:
        """Bring each site its request and return its answer, or why there is none, within `deadline` seconds."""
        end = time.monotonic() + deadline
        answers: dict[str, bytes | Lost] = {}
        ways: dict[RelayJob, dict[str, bytes]] = {}
        for site, request in requests.items():
            way = self._keeper.way_to(site)
            if way is None:
                answers[site] = Lost(self._keeper.why_not(site))
            else:
                ways.setdefault(way, {})[site] = request
        calls = [Call(way, part, end, self._keeper.session) for way, part in ways.items()]
        for call in calls:
            came, lost = call.wait()
            self._keeper.suspect(call.way, lost)
            answers |= came
            answers |= {site: Lost(f"{site}: {why}") for site, why in lost.items()}
        return answers

    def close(self) -> None:
        """End the relays and log out."""
        self._closed()
