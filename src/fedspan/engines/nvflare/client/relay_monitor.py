"""The relay monitor: keeps a relay open to every site that is online, and starts relays again after any death.

One thread, with a session of its own. What it knows is behind one lock; `NVFlareTransport.send` only looks it up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from fedspan.engines.nvflare.client.relays import RelayGroups, RelayJob, Relays, Roster
from fedspan.engines.nvflare.client.user_session import (
    COMMAND_LIMIT,
    DeniedError,
    JobEndedError,
    ServerOfflineError,
    UserSession,
)
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.errors import FedspanError

#: Seconds between two checks of the server: while all is well, and while something is to be repaired.
CALM, BUSY = 1.0, 0.25

#: Seconds that a relay has to start: on a busy machine it takes twenty.
START_LIMIT = 45.0

#: Seconds after which a federation is taken to have no site online.
NO_SITES = 8.0

_log = logging.getLogger(__name__)


class RelayMonitor:
    """Knows the relay to each site, why the server can't be used now (`trouble`), and that it refuses this user."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._changed = threading.Condition(threading.RLock())
        self._relays = Relays()
        self.trouble: str | None = None
        self.denied: DeniedError | None = None
        self._roster = Roster()
        self._groups = RelayGroups()
        self._suspects: dict[str, RelayJob] = {}  # sites that gave no answer: to be checked before the next request
        self._checks = 0
        self._session: UserSession | None = UserSession(kit)  # raises at once where the user is refused
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fedspan-relay-monitor")
        self._thread.start()

    def session(self) -> UserSession:
        """Return the session, which this thread keeps open; requests travel on it beside the monitor's commands."""
        with self._changed:
            if self._session is None:
                raise ServerOfflineError(self.trouble or "there is no session with the federation's server")
            return self._session

    def relay_to(self, site: str) -> RelayJob | None:
        """Return the relay that leads to `site`, if one does."""
        with self._changed:
            return None if self.trouble else self._relays.routes.get(site)

    def online(self) -> frozenset[str]:
        """Return the sites to which a relay is open."""
        with self._changed:
            return frozenset() if self.trouble else frozenset(self._relays.routes)

    def why_not(self, site: str) -> str:
        """Return why no relay leads to `site`."""
        with self._changed:
            if self.trouble:
                return self.trouble
            if site in self._relays.starting():
                return f"{site} is connected, and a relay to it is starting"
            return f"{site} is silent" if site in self._suspects else self._roster.why_not(site)

    def wait_for(self, sites: Iterable[str] | None, limit: float) -> frozenset[str]:
        """Wait until relays to all `sites`, or to all that are connected, are open, or `limit` seconds."""

        def ready() -> bool:
            wanted = self._roster.online() if sites is None else set(sites)
            return self.denied is not None or (self._checks > 1 and bool(wanted) and wanted <= self.online())

        def known() -> bool:
            return bool(self._roster.heard) or self.denied is not None

        with self._changed:
            if sites is None:  # sites that have just started show within seconds
                self._changed.wait_for(known, timeout=min(limit, NO_SITES))
                limit = limit if self._roster.heard else 0.0
            self._changed.wait_for(ready, timeout=limit)
            return self.online() if sites is None else self.online() & frozenset(sites)

    def suspect(self, job: RelayJob, sites: Iterable[str]) -> None:
        """Record sites that gave no answer through `job`: they get no request before they are checked."""
        with self._changed:
            lost = [site for site in sites if self._relays.routes.get(site) is job]
            self._relays.leave(lost)
            self._suspects |= dict.fromkeys(lost, job)
        if lost:
            self._nudge.set()

    def stop(self) -> None:
        """End the thread, the relays and the session."""
        self._stop.set()
        self._nudge.set()
        self._thread.join(timeout=COMMAND_LIMIT)
        with self._changed:
            jobs, session = list(self._relays.jobs), self._session
        if session is None:
            return
        try:
            for job in jobs:
                self._end(session, job, "the connection was closed")
        except FedspanError:
            _log.debug("a relay was not ended; it ends by itself")
        session.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._check()
                with self._changed:
                    self.trouble = None
                    self._checks += 1
                    self._changed.notify_all()
            except DeniedError as error:
                self.denied = error
                self._server_offline(str(error))
                return
            except FedspanError as error:
                self._server_offline(str(error))
            except Exception:  # of any kind from NVIDIA FLARE: the monitor goes on
                _log.exception("a check of the federation's server failed")
                self._server_offline("the federation's server gave an invalid answer")
            self._nudge.wait(BUSY if self._busy() else CALM)
            self._nudge.clear()

    def _busy(self) -> bool:
        with self._changed:
            return bool(self.trouble or self._relays.starting() or set(self._roster.heard) - set(self._relays.routes))

    def _server_offline(self, trouble: str) -> None:
        """Release all that wait. The relays may have survived, and are checked when the server answers again."""
        with self._changed:
            self.trouble = trouble
            session, self._session = self._session, None
            for job in self._relays.jobs:
                job.release(trouble)
            self._changed.notify_all()
        if session is not None:
            threading.Thread(target=session.close, daemon=True).start()

    def _check(self) -> None:
        if self._session is None:
            self._session = UserSession(self._kit)
        session = self._session
        heard = session.registered()
        with self._changed:
            self._roster.heard = {site: when for site, when in heard.items() if site in self._kit.sites}
        for job in list(self._relays.jobs):
            self._check_relay(session, job)
        self._check_sites(session)
        self._start_relays(session)
        for job in self._relays.unused(self._suspects.values()):
            self._end(session, job, "it leads to no site")

    def _check_relay(self, session: UserSession, job: RelayJob) -> None:
        """Keep a relay alive, see whether it listens now, and remove one that ended."""
        try:
            answer = session.command(job.job, what="alive")
        except JobEndedError:
            self._remove_ended(session, job)
            answer = None
        if answer is not None:
            with self._changed:
                job.renew()  # it may have outlived a server that was offline for a while
                if not job.ready:
                    self._relays.opened(job, (site for site in answer["sites"] if site in job.wanted))
                    self._changed.notify_all()
        elif not job.ready and time.monotonic() - job.begun > START_LIMIT:
            self._groups.separate(job.wanted)
            self._end(session, job, "the relay did not start")

    def _remove_ended(self, session: UserSession, job: RelayJob) -> None:
        """Remove a relay that the server does not run, unless it still waits to start."""
        try:
            failed = session.status(job.job)[0] == "FINISHED"
            over = failed or job.ready
        except JobEndedError:  # a restarted server knows no earlier job
            over, failed = True, False
        if over:
            if failed and not job.ready:
                self._groups.separate(job.wanted)
            with self._changed:
                self._relays.ended(job, "the relay on the server ended")
                self._changed.notify_all()

    def _check_sites(self, session: UserSession) -> None:
        """Request the sites' lists of jobs: they show at once that a process died or that a site restarted."""
        with self._changed:
            expected = self._relays.routes | self._suspects
            connected = [site for site in {*expected, *self._relays.starting()} if site in self._roster.heard]
        running = session.jobs_at(connected) if connected else {}
        self._give_up_starts(session, running)
        ended: dict[RelayJob, list[str]] = {}
        with self._changed:
            for site, job in expected.items():
                self._suspects.pop(site, None)
                if job not in self._relays.jobs:
                    continue
                if job.job in running.get(site, ()):
                    self._relays.opened(job, [site])  # slow, but alive
                    continue
                ended.setdefault(job, []).append(site)
                self._relays.leave([site])
                self._roster.lose([site], running)
            self._changed.notify_all()
        for job, sites in ended.items():
            with suppress(JobEndedError):
                session.command(job.job, what="forget", sites=sites)

    def _give_up_starts(self, session: UserSession, running: Mapping[str, set[str]]) -> None:
        """Give up each starting relay with a site that died meanwhile: the others get one without it."""
        for job in [job for job in self._relays.jobs if not job.ready]:
            dead = job.dead(running, self._roster.heard)
            if dead:
                with self._changed:
                    self._roster.lose(dead, running)
                    self._groups.hurry()
                self._end(session, job, f"{', '.join(sorted(dead))} died while the relay started")

    def _start_relays(self, session: UserSession) -> None:
        """Start a relay for the sites that are online and have none."""
        with self._changed:
            taken = {*self._relays.routes, *self._suspects, *self._relays.starting()}
            groups = self._groups.next(self._roster.online() - taken, self._kit.sites)
        for sites in groups:
            job = RelayJob(session.submit_relay(sites), sites)
            with self._changed:
                self._relays.jobs.append(job)

    def _end(self, session: UserSession, job: RelayJob, why: str) -> None:
        """End a relay by its own command, or abort it if it does not listen."""
        with self._changed:
            self._relays.ended(job, why)
            self._changed.notify_all()
        with suppress(JobEndedError, DeniedError):
            if not job.ready or session.command(job.job, what="end") is None:
                session.abort(job.job)
