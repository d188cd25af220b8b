"""Serial numbers of requests: a site takes a run's requests in rising order only, and each has an order of its own."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

#: No clock has shown so many nanoseconds since 1970: a site that claims to have seen more is not believed.
MOST = 2**62


class Serials:
    """Numbers requests by the clock, so that they rise also over runs of this process.

    A site that has seen a later number (the clock was set back since, or it lies) gets higher ones, it alone: what one
    site says about numbers has no part in what the others are sent.
    """

    def __init__(self) -> None:
        self._clock = 0
        self._last: dict[str, int] = {}
        self._ahead: dict[str, int] = {}  # by site that has seen a later number than the clock's: that number

    def next(self, sites: Collection[str]) -> dict[str, int]:
        """Return the number of the next request to each of the sites: one for all that are not ahead."""
        self._clock = max(self._clock + 1, time.time_ns())
        for site in sites:
            self._last[site] = max(self._clock, self._ahead.get(site, -1) + 1)
            if site in self._ahead:
                self._ahead[site] = self._last[site]
            if self._last[site] == self._clock:
                self._ahead.pop(site, None)
        return {site: self._last[site] for site in sites}

    def catch_up(self, site: str, seen: Any) -> bool:
        """Take note of what a site says that it has seen; tell whether a further request may be taken by it."""
        if isinstance(seen, bool) or not isinstance(seen, int) or not self._last[site] <= seen < MOST:
            return False
        self._ahead[site] = seen
        return True
