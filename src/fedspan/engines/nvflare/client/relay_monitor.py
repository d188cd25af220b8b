"""Keeps a way open to every site that is there: watches the server, and starts relays anew after any death.

One thread with a session of its own. What is known is behind one lock; `NVFlareTransport.send` only looks it up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from fedspan.engines.nvflare.client.relay_groups import Gathering, Roster
from fedspan.engines.nvflare.client.relays import RelayJob, Relays
from fedspan.engines.nvflare.client.user_session import COMMAND_LIMIT, AwayError, DeniedError, GoneError, Session
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.errors import FedspanError

#: Seconds between two looks at the server: while all is well, and while something is to be mended.
CALM, BUSY = 1.0, 0.25

#: Seconds that a relay has to start: a busy machine takes twenty.
START_LIMIT = 45.0

#: Seconds after which a federation without any site is believed to have none.
NOBODY = 8.0

_log = logging.getLogger(__name__)


class Keeper:
    """What is known about the way to each site."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.changed = threading.Condition(threading.RLock())
        self.relays = Relays()
        self.trouble: str | None = None
        self.denied: DeniedError | None = None
        self._roster = Roster()
        self._gathering = Gathering()
        self._suspects: dict[str, RelayJob] = {}  # sites that gave no answer: not asked again before they are looked at
        self._looks = 0
        self._session: Session | None = Session(kit)  # a refusal is said at once
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fedspan-keeper")
        self._thread.start()

    def session(self) -> Session:
        """Return the session, which the watch keeps open; calls travel on it too, beside the keeper's commands."""
        with self.changed:
            if self._session is None:
                raise AwayError(self.trouble or "there is no session with the federation's server")
            return self._session

    def way_to(self, site: str) -> RelayJob | None:
        """Return the relay that leads to `site`, if one does."""
        with self.changed:
            return None if self.trouble else self.relays.home.get(site)

    def online(self) -> frozenset[str]:
        """Return the sites to which a way is open."""
        with self.changed:
            return frozenset() if self.trouble else frozenset(self.relays.home)

    def why_not(self, site: str) -> str:
        """Say why there is no way to `site`."""
        with self.changed:
            if self.trouble:
                return self.trouble
            if site in self.relays.starting():
                return f"{site} is there, and the way to it is being opened"
            return f"{site} does not answer" if site in self._suspects else self._roster.why_not(site)

    def wait_for(self, sites: Iterable[str] | None, limit: float) -> frozenset[str]:
        """Wait until a way to all `sites` is open (or to all that are connected), or `limit` seconds."""

        def ready() -> bool:
            wanted = self._roster.there() if sites is None else set(sites)
            return self.denied is not None or (self._looks > 1 and bool(wanted) and wanted <= self.online())

        with self.changed:
            if sites is None:  # sites that are just being started show within seconds; none at all is an answer too
                self.changed.wait_for(lambda: self._roster.heard or self.denied is not None, timeout=min(limit, NOBODY))
                limit = limit if self._roster.heard else 0.0
            self.changed.wait_for(ready, timeout=limit)
            return self.online() if sites is None else self.online() & frozenset(sites)

    def suspect(self, job: RelayJob, sites: Iterable[str]) -> None:
        """Take note of sites that gave no answer through `job`: they are not asked again before they are looked at."""
        with self.changed:
            lost = [site for site in sites if self.relays.home.get(site) is job]
            self.relays.leave(lost)
            self._suspects |= dict.fromkeys(lost, job)
        if lost:
            self._nudge.set()

    def stop(self) -> None:
        """End the thread, the relays and the session."""
        self._stop.set()
        self._nudge.set()
        self._thread.join(timeout=COMMAND_LIMIT)
        with self.changed:
            jobs, session = list(self.relays.jobs), self._session
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
                self._look()
                with self.changed:
                    self.trouble = None
                    self._looks += 1
                    self.changed.notify_all()
            except DeniedError as error:
                self.denied = error
                self._server_away(error)
                return
            except FedspanError as error:
                self._server_away(error)
            except Exception:  # whatever NVIDIA FLARE raises, the watch goes on
                _log.exception("the watch over the federation stumbled")
                self._server_away(AwayError("the federation's server gave an answer that makes no sense"))
            self._nudge.wait(BUSY if self._busy() else CALM)
            self._nudge.clear()

    def _busy(self) -> bool:
        with self.changed:
            return bool(self.trouble or self.relays.starting() or set(self._roster.heard) - set(self.relays.home))

    def _server_away(self, error: FedspanError) -> None:
        """Release whoever waits; the relays may have lived on, and are looked at when the server answers again."""
        with self.changed:
            self.trouble = str(error)
            session, self._session = self._session, None
            for job in self.relays.jobs:
                job.release(self.trouble)
            self.changed.notify_all()
        if session is not None:
            threading.Thread(target=session.close, daemon=True).start()

    def _look(self) -> None:
        if self._session is None:
            self._session = Session(self._kit)
        session = self._session
        heard = session.registered()
        with self.changed:
            self._roster.heard = {site: when for site, when in heard.items() if site in self._kit.sites}
        for job in list(self.relays.jobs):
            self._look_at(session, job)
        self._look_at_sites(session)
        self._open_ways(session)
        for job in self.relays.unused(self._suspects.values()):
            self._end(session, job, "it leads nowhere")

    def _look_at(self, session: Session, job: RelayJob) -> None:
        """Keep a relay alive, see whether it listens now, and let go of one that ended."""
        try:
            answer = session.command(job.job, what="alive")
        except GoneError:
            self._look_for(session, job)
            answer = None
        if answer is not None:
            with self.changed:
                job.renew()  # the server may have been away for a while, and the relay outlived it
                if not job.ready:
                    self.relays.opened(job, (site for site in answer["sites"] if site in job.wanted))
                    self.changed.notify_all()
        elif not job.ready and time.monotonic() - job.begun > START_LIMIT:
            self._gathering.part(job.wanted)
            self._end(session, job, "the relay did not start")

    def _look_for(self, session: Session, job: RelayJob) -> None:
        """Let go of a relay that the server does not run: unless it waits to be started."""
        try:
            failed = session.status(job.job).startswith("FINISHED")
            over = failed or job.ready
        except GoneError:  # a server that was started anew knows none from before
            over, failed = True, False
        if over:
            if failed and not job.ready:
                self._gathering.part(job.wanted)
            with self.changed:
                self.relays.ended(job, "the relay on the server ended")
                self.changed.notify_all()

    def _look_at_sites(self, session: Session) -> None:
        """Ask the sites which jobs they run: a process that died or a site that was started anew shows at once."""
        with self.changed:
            asked = self.relays.home | self._suspects
            there = [site for site in {*asked, *self.relays.starting()} if site in self._roster.heard]
        running = session.jobs_at(there) if there else {}
        self._give_up_starts(session, running)
        gone: dict[RelayJob, list[str]] = {}
        with self.changed:
            for site, job in asked.items():
                self._suspects.pop(site, None)
                if job not in self.relays.jobs:
                    continue
                if job.job in running.get(site, ()):
                    self.relays.opened(job, [site])  # slow perhaps, but not dead
                    continue
                gone.setdefault(job, []).append(site)
                self.relays.leave([site])
                self._roster.lose([site], running)
            self.changed.notify_all()
        for job, sites in gone.items():
            try:
                session.command(job.job, what="forget", sites=sites)
            except GoneError:
                continue

    def _give_up_starts(self, session: Session, running: Mapping[str, set[str]]) -> None:
        """Give up each relay that is being started for a site which died meanwhile: the others get one without it."""
        for job in [job for job in self.relays.jobs if not job.ready]:
            gone = job.starting.gone(job.wanted, running, self._roster.heard)
            if gone:
                with self.changed:
                    self._roster.lose(gone, running)
                    self._gathering.hurry()
                self._end(session, job, f"{', '.join(sorted(gone))} died while it was being started")

    def _open_ways(self, session: Session) -> None:
        """Start one relay for all sites that are there and have none."""
        with self.changed:
            taken = {*self.relays.home, *self._suspects, *self.relays.starting()}
            groups = self._gathering.groups(self._roster.there() - taken, self._kit.sites)
        for sites in groups:
            job = RelayJob(session.submit_relay(sites), sites)
            with self.changed:
                self.relays.add(job)

    def _end(self, session: Session, job: RelayJob, why: str) -> None:
        """End a relay: it does so when asked, and is aborted if it does not listen."""
        with self.changed:
            self.relays.ended(job, why)
            self.changed.notify_all()
        try:
            if not job.ready or session.command(job.job, what="end") is None:
                session.abort(job.job)
        except (GoneError, DeniedError):
            return
