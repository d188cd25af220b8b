"""Relays of one user: which leads to which site, which sites share the next one, and which will never start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

#: Seconds in which a site that does not answer must show itself to the server, which it does every two seconds, and in
#: which it must have started what the other sites of its relay have started.
SILENT, LATE = 5.0, 8.0

#: Checks of the server after which a new relay waits no longer for sites that connect at the same time.
CHECKS = 3


@dataclass(eq=False)
class RelayJob:
    """A job on the server that leads to the sites `wanted`. `ended` is set as soon as the job is known to have ended.

    NVIDIA FLARE starts a job at all of its sites together, and waits until its own limit for one that died meanwhile.
    `dead` finds such a site sooner, so that the relay is given up and started again for the others.
    """

    job: str
    wanted: frozenset[str]
    ready: bool = False
    begun: float = field(default_factory=time.monotonic)
    ended: Future[str] = field(default_factory=Future)
    _seen: set[str] = field(default_factory=set)  # sites that reported that they run it
    _first: float = 0.0  # when the first of them did
    _silent: dict[str, tuple[float, float]] = field(default_factory=dict)  # last heard of, and silent since when

    def release(self, why: str) -> None:
        """Release all that wait for this relay."""
        if not self.ended.done():
            self.ended.set_result(why)

    def renew(self) -> None:
        """Undo `release`: the relay is alive."""
        if self.ended.done():
            self.ended = Future()

    def dead(self, running: Mapping[str, set[str]], heard: Mapping[str, float]) -> set[str]:
        """Return the sites, of a relay that is starting, that will not come: they died, or restarted meanwhile.

        `running` are the jobs of each site that answers, `heard` when the server last heard of each site.
        """
        now = time.monotonic()
        new = {site for site in self.wanted if self.job in running.get(site, ())}
        if new and not self._seen:
            self._first = now
        late = bool(self._seen) and now - self._first > LATE
        dead = set()
        for site in self.wanted:
            if site not in heard:
                dead.add(site)
            elif site in running:
                self._silent.pop(site, None)
                if site not in new and (site in self._seen or late):
                    dead.add(site)
            elif self._is_silent(site, heard[site], now):
                dead.add(site)
        self._seen |= new
        return dead

    def _is_silent(self, site: str, heard: float, now: float) -> bool:
        before, since = self._silent.setdefault(site, (heard, now))
        if heard != before:  # it is slow, but alive
            self._silent[site] = (heard, now)
            return False
        return now - since > SILENT


class Relays:
    """The relays of one user's process: each site has the newest one that leads to it (`routes`), or none."""

    def __init__(self) -> None:
        self.jobs: list[RelayJob] = []
        self.routes: dict[str, RelayJob] = {}

    def starting(self) -> frozenset[str]:
        """Return the sites to which a relay is starting."""
        return frozenset[str]().union(*(job.wanted for job in self.jobs if not job.ready))

    def opened(self, job: RelayJob, sites: Iterable[str]) -> None:
        """Reach `sites` by `job` from now on."""
        job.ready = True
        self.routes.update(dict.fromkeys(sites, job))

    def leave(self, sites: Iterable[str]) -> None:
        """Remove the routes to `sites`: their processes have ended."""
        for site in sites:
            self.routes.pop(site, None)

    def ended(self, job: RelayJob, why: str) -> None:
        """Remove a relay, and release all that wait for it."""
        self.jobs = [other for other in self.jobs if other is not job]
        self.routes = {site: other for site, other in self.routes.items() if other is not job}
        job.release(why)

    def unused(self, besides: Iterable[RelayJob] = ()) -> list[RelayJob]:
        """Return the relays that lead to no site any more, except those named."""
        used = {*self.routes.values(), *besides}
        return [job for job in self.jobs if job.ready and job not in used]


class Roster:
    """The sites that the server has heard of (`heard`: when, by its clock), and which of them do not answer."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self._lost: dict[str, float] = {}  # a site whose process has ended must be heard of after this

    def online(self) -> frozenset[str]:
        """Return the connected sites that were heard of since their processes ended, if they did."""
        return frozenset(site for site, when in self.heard.items() if when > self._lost.get(site, 0.0))

    def lose(self, sites: Iterable[str], answering: Mapping[str, object]) -> None:
        """Record sites whose processes have ended. A site that answers has restarted; others must be heard of again."""
        self._lost |= {site: 0.0 if site in answering else self.heard.get(site, 0.0) for site in sites}

    def why_not(self, site: str) -> str:
        """Return why `site` has no relay."""
        if site not in self.heard:
            return f"{site} is not connected"
        return f"{site} is connected, and a relay to it will start" if site in self.online() else f"{site} is silent"


class RelayGroups:
    """Decides which sites share a relay: those that connect at the same time."""

    def __init__(self) -> None:
        self._before: tuple[frozenset[str], int] = (frozenset(), 0)  # sites without a relay, and checks since then
        self._apart: set[str] = set()
        self._at_once = False

    def separate(self, sites: Iterable[str]) -> None:
        """Give each of these a relay of its own: one of them, it is unknown which, kept theirs from starting."""
        self._apart |= set(sites)

    def hurry(self) -> None:
        """Wait for no more sites: those without a relay had one before."""
        self._at_once = True

    def next(self, waiting: frozenset[str], all_sites: Iterable[str]) -> list[frozenset[str]]:
        """Return the groups that get a relay now, of the sites `waiting` for one."""
        same, checks = self._before
        checks = checks + 1 if waiting == same else 1
        self._before = (waiting, checks)
        if not waiting or (checks < CHECKS and waiting != set(all_sites) and not self._at_once):
            return []
        apart = waiting & self._apart
        self._at_once, self._apart = False, self._apart - apart
        return [sites for sites in (*(frozenset([site]) for site in sorted(apart)), waiting - apart) if sites]
