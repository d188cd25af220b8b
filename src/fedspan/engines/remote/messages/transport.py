"""What carries bytes to sites and back. It neither reads nor trusts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lost:
    """Why no answer came from a site, in words."""

    reason: str


class Transport(Protocol):
    """A way to the sites of one federation."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of all sites of the federation, sorted."""

    def send(self, requests: Mapping[str, bytes], deadline: float) -> dict[str, bytes | Lost]:
        """Bring each site its request and return its answer, or why there is none, within `deadline` seconds.

        Never raises because a site or the server is away; a site that is known to be away is lost at once. It tries
        once: whoever sends repeats.
        """

    def online(self) -> frozenset[str]:
        """Return the sites that could be reached now, as far as is known, without waiting."""

    def close(self) -> None:
        """Let go of the connection."""
