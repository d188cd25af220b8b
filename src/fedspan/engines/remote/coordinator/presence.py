"""Which sites are away: a site that did not answer is not waited for again until it says that it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from fedspan.engines.remote.messages.transport import Transport

#: Asking who was away whether it is there takes at most so many seconds, and at most a tenth of the time.
_PROBE = 2.0
_PAUSES = (0.02, 1.0)


@dataclass
class _Absence:
    reason: str
    next_probe: float = 0.0


class Presence:
    """Keeps account of who is away.

    Parameters
    ----------
    transport : Transport
    probe : callable
        ``probe(sites, seconds)`` returns those of the sites that answer and are not busy.
    """

    def __init__(self, transport: Transport, probe: Callable[[Sequence[str], float], Iterable[str]]) -> None:
        self._transport = transport
        self._probe = probe
        self._away: dict[str, _Absence] = {}

    def lost(self, site: str, reason: str) -> None:
        """Take note that a site did not answer."""
        self._away.setdefault(site, _Absence(reason))

    def away(self, sites: Iterable[str]) -> dict[str, str]:
        """Return which of the sites are away, with the reason, after a look at those that may have come back."""
        gone = [site for site in sites if site in self._away]
        if gone:
            now, online = monotonic(), self._transport.online()
            due = [site for site in gone if site in online and now >= self._away[site].next_probe]
            if due:
                self._look_for(due, now)
        return {site: self._away[site].reason for site in gone if site in self._away}

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait until one of the sites is there, at most so long."""
        until = monotonic() + seconds
        pause, longest = _PAUSES
        while len(self.away(sites)) == len(sites):
            left = until - monotonic()
            if left <= 0:
                return False
            sleep(min(pause, left))
            pause = min(1.5 * pause, longest)
        return True

    def _look_for(self, sites: list[str], began: float) -> None:
        for site in self._probe(sites, _PROBE):
            del self._away[site]
        now = monotonic()
        for site in sites:
            if site in self._away:
                self._away[site].next_probe = now + 9 * (now - began)
