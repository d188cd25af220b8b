"""Offline sites: a site that did not answer is not waited for again until a short probe reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from fedspan.engines.remote.messages.transport import Transport

#: Seconds that one probe may take, and how much longer the pause after it is: probes take at most a tenth of the time.
_PROBE, _REST = 2.0, 9
#: The first and the longest pause, in seconds, while waiting for a site.
_PAUSES = (0.02, 1.0)


@dataclass
class _Absence:
    reason: str
    next_probe: float = 0.0


class Presence:
    """Records which sites are offline.

    Parameters
    ----------
    transport : Transport
    probe : callable
        ``probe(sites, seconds)`` returns those of the sites that answer and are not busy.
    """

    def __init__(self, transport: Transport, probe: Callable[[Sequence[str], float], Iterable[str]]) -> None:
        self._transport = transport
        self._probe = probe
        self._offline: dict[str, _Absence] = {}

    def lost(self, site: str, reason: str) -> None:
        """Record that a site did not answer."""
        self._offline.setdefault(site, _Absence(reason))

    def offline(self, sites: Iterable[str]) -> dict[str, str]:
        """Return which of the sites are offline, with the reason, after a probe of those that may be back."""
        absent = [site for site in sites if site in self._offline]
        if absent:
            now, online = monotonic(), self._transport.online()
            due = [site for site in absent if site in online and now >= self._offline[site].next_probe]
            if due:
                self._look_for(due, now)
        return {site: self._offline[site].reason for site in absent if site in self._offline}

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait, at most `seconds`, until one of the sites is back; return whether one is."""
        until = monotonic() + seconds
        pause, longest = _PAUSES
        while len(self.offline(sites)) == len(sites):
            left = until - monotonic()
            if left <= 0:
                return False
            sleep(min(pause, left))
            pause = min(1.5 * pause, longest)
        return True

    def _look_for(self, sites: list[str], began: float) -> None:
        for site in self._probe(sites, _PROBE):
            del self._offline[site]
        now = monotonic()
        for site in sites:
            if site in self._offline:
                self._offline[site].next_probe = now + _REST * (now - began)
