"""The interface of a transport: it carries bytes to sites and back, and neither reads nor trusts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lost:
    """Why no answer came from a site."""

    reason: str


class Transport(Protocol):
    """A connection to the sites of one federation."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""

    def send(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Lost]:
        """Deliver each site its request and return its answer, or why there is none, within `deadline` seconds.

        Try once. Never raise because a site or the server is offline; return at once for a site known to be offline.
        """

    def online(self) -> frozenset[str]:
        """Return the sites that can be reached by what is known now, without waiting."""

    def close(self) -> None:
        """Close the connection."""
