"""Which relay leads to which site."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from fedspan.engines.nvflare.client.relay_start import Starting


@dataclass(eq=False)
class RelayJob:
    """A job on the server that leads to some sites. `gone` is set as soon as it is known to have ended."""

    job: str
    wanted: frozenset[str]
    ready: bool = False
    begun: float = field(default_factory=time.monotonic)
    gone: Future[str] = field(default_factory=Future)
    starting: Starting = field(init=False)

    def __post_init__(self) -> None:
        self.starting = Starting(self.job)

    def release(self, why: str) -> None:
        """Let go of who waits for this relay."""
        if not self.gone.done():
            self.gone.set_result(why)

    def renew(self) -> None:
        """Take back that it was given up."""
        if self.gone.done():
            self.gone = Future()


class Relays:
    """The relays of one user's process: each site has the newest that leads to it, or none."""

    def __init__(self) -> None:
        self.jobs: list[RelayJob] = []
        self.home: dict[str, RelayJob] = {}

    def add(self, job: RelayJob) -> None:
        """Take note of a relay that is being started."""
        self.jobs.append(job)

    def starting(self) -> frozenset[str]:
        """Return the sites to which a relay is being started."""
        return frozenset[str]().union(*(job.wanted for job in self.jobs if not job.ready))

    def opened(self, job: RelayJob, sites: Iterable[str]) -> None:
        """Lead to `sites` by `job` from now on."""
        job.ready = True
        self.home.update(dict.fromkeys(sites, job))

    def leave(self, sites: Iterable[str]) -> None:
        """Lead to `sites` no more: their processes are gone."""
        for site in sites:
            self.home.pop(site, None)

    def ended(self, job: RelayJob, why: str) -> None:
        """Let go of a relay, and of who waits for it."""
        self.jobs = [other for other in self.jobs if other is not job]
        self.home = {site: other for site, other in self.home.items() if other is not job}
        job.release(why)

    def unused(self, besides: Iterable[RelayJob] = ()) -> list[RelayJob]:
        """Return the relays that lead nowhere any more, except those named."""
        used = {*self.home.values(), *besides}
        return [job for job in self.jobs if job.ready and job not in used]
