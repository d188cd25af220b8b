"""Which sites of a relay that is being started will never come.

NVIDIA FLARE starts a job at all of its sites together, and waits for one that died meanwhile until its own limit. The
keeper looks sooner: such a relay is given up, and started anew for the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Seconds in which a site that gives no answer must show itself to the server (it does so every two seconds), and
#: in which it must have begun what the others of its relay have begun.
SILENT, LATE = 5.0, 8.0


@dataclass
class Starting:
    """What was seen so far of the sites of one relay that is being started."""

    job: str
    seen: set[str] = field(default_factory=set)  # sites that said that they run it
    first: float = 0.0  # when the first of them did
    silent: dict[str, tuple[float, float]] = field(default_factory=dict)  # heard of last, and since when silent

    def gone(self, wanted: frozenset[str], running: Mapping[str, set[str]], heard: Mapping[str, float]) -> set[str]:
        """Return those of the sites `wanted` that will not come: they died, or were started anew and know nothing.

        `running` are the jobs of each site that answers, `heard` when the server last heard of each site.
        """
        now = time.monotonic()
        new = {site for site in wanted if self.job in running.get(site, ())}
        if new and not self.seen:
            self.first = now
        lost = {site for site in wanted if site not in heard or (site in running and self._forgot(site, new, now))}
        lost |= {site for site in wanted - lost - set(running) if self._is_silent(site, heard[site], now)}
        self.seen |= new
        for site in running:
            self.silent.pop(site, None)
        return lost

    def _forgot(self, site: str, new: set[str], now: float) -> bool:
        late = bool(self.seen) and now - self.first > LATE
        return site not in new and (site in self.seen or late)

    def _is_silent(self, site: str, heard: float, now: float) -> bool:
        before, since = self.silent.setdefault(site, (heard, now))
        if heard != before:  # it is slow, and there
            self.silent[site] = (heard, now)
            return False
        return now - since > SILENT
