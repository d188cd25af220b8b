"""The site's side: one object per site process, which answers requests and keeps what it said on the site's disk."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.engines.remote.about import STEPS, environment, fedspan_version, install_steps
from fedspan.engines.remote.ask import Ask, Guard
from fedspan.engines.remote.asks import NOBODY, Asks
from fedspan.engines.remote.call import after_call, checked_run, site_call
from fedspan.engines.remote.envelope import Opened, Sealed, head_digest, open_sealed
from fedspan.engines.remote.identity import Authority, Identity, Who
from fedspan.engines.remote.introduction import Introductions
from fedspan.engines.remote.refusals import BusyError, StepError, refusal
from fedspan.engines.remote.run_file import RunFile
from fedspan.engines.remote.site_store import SiteStore
from fedspan.engines.threads import PinnedThreads
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError
from fedspan.federation.call import Delivery
from fedspan.federation.host import SiteHost
from fedspan.federation.site import Site
from fedspan.wire import DEFAULT_MAX_BYTES, Message

#: Roles that may run protocols. Whoever has any role may ask what a site is.
ROLES = ("project_admin", "lead")
_MOST_THREADS = 1024


class SiteWorker:
    """Answers requests at one site. One at a time: a late call never overlaps the next one.

    Parameters
    ----------
    site : Site
        Named as in the identity's certificate.
    folder : path
        The site's disk (see `SiteStore`).
    identity : Identity
        The site's own.
    authority : Authority
        The federation's root.
    guard : Guard, optional
        The owner's rules. Without one whoever has the role may run every step.
    roles : names, default=("project_admin", "lead")
        Who may run steps, by the role in the certificate.
    max_bytes : int, default=256 MiB
        The largest request.
    steps : names of packages
        Whose steps are installed here, besides those that are already.
    any_version : bool, default=False
        Answer also to another version of fedspan.
    """

    def __init__(
        self,
        site: Site,
        folder: Path | str,
        identity: Identity,
        authority: Authority,
        guard: Guard | None = None,
        *,
        roles: Iterable[str] = ROLES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        steps: Iterable[str] = STEPS,
        any_version: bool = False,
    ) -> None:
        if identity.who != Who(site.name):
            raise InputError(
                f"the site is called {site.name!r}, and its certificate is that of {identity.name!r}"
                f"{f' with the role {identity.role!r}' if identity.role else ''}: they must have one name"
            )
        self.site = site
        self.identity = identity
        self.authority = authority
        self.guard = guard
        self.roles = frozenset(roles)
        self.max_bytes = max_bytes
        self.any_version = any_version
        self.steps = install_steps(steps)
        self.store = SiteStore(Path(folder))
        self.host = SiteHost(site, records=self.store)
        self.introductions = Introductions(identity, authority, self.host.vault)
        self.instance = secrets.token_hex(8)  # of this process: what it does not write down is lost with it
        self.fingerprint = _keyed(site.fingerprint(), self.store.secret())
        self._lock = threading.Lock()
        self._busy = ""
        self._threads: tuple[int, PinnedThreads] | None = None
        self._asks = Asks()

    def answer(self, request: bytes) -> bytes:
        """Answer a request. Whatever it holds, the answer is a signed one: a reply, or a sentence that says why not."""
        try:
            opened = open_sealed(request, self.authority, "request", self.site.name, self.max_bytes)
        except Exception as error:
            told = refusal(error)
            self._note(NOBODY, told)
            return self._response(head_digest(request, self.max_bytes), {}, told)
        try:
            self._check_sender(opened)
            told, parts = getattr(self, f"_{_kind(opened)}")(opened)
        except Exception as error:
            told, parts = refusal(error), {}
            self._note(self._asks.of_refused(opened), told)
        return self._response(opened.digest, opened.head, told, parts)

    def close(self) -> None:
        """Let go of the site's folder."""
        self.store.close()
        if self._threads is not None:
            self._threads[1].release()

    # The kinds of requests.

    def _call(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        self._check_role(opened.who, "run anything")
        with self._alone(opened.head, f"call {opened.head['number']}"):
            return self._perform(opened)

    def _perform(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        head, file = opened.head, self._checked_run(opened)
        ask = self._asks.of(opened, first=file.kept.pending_number is None)
        if self.guard is not None:
            self.guard.admit(ask)
        call, payload, after = site_call(opened, self.site.name)
        self._set_threads(int(head["threads"]))
        vault = self.host.vault
        vault.sums_only, vault.least = file.least > 0, max(2, file.least)
        try:
            delivery = self.host.perform(call, payload, after)
        except FedspanError:
            raise
        except (Exception, SystemExit) as error:
            self.store.drop(call.run)  # what is on the disk counts
            raise StepError(call.step.name, error) from None
        return self._reply(ask, delivery, int(head["max_bytes"]))

    def _reply(self, ask: Ask, delivery: Delivery, max_bytes: int) -> tuple[Message, dict[str, bytes]]:
        reply = self.store.run(ask.run).said(delivery)
        if len(reply) > max_bytes:
            raise MessageError(f"oversize: the reply has {len(reply)} bytes, more than the {max_bytes} allowed")
        if self.guard is not None:
            self.guard.release(ask, len(reply))
        return {"kind": "reply", "rows": delivery.rows}, {"reply": reply}

    def _hello(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        about = {
            "version": fedspan_version(),
            "environment": environment(),
            "fingerprint": self.fingerprint,
            "steps": self.steps,
            "busy": self._busy,
        }
        parts = {"about": json.dumps(about).encode(), "introduction": self.introductions.own}
        return {"kind": "about"}, parts

    def _introduce(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        """Learn the keys of the other sites, for the secure sums of a run, and answer it by such sums only."""
        self._check_role(opened.who, "introduce anybody")
        with self._alone(opened.head, "an introduction"):
            file = self._checked_run(opened)
            least = int(opened.head["least"])
            if least < max(2, file.least):
                raise PolicyError(f"the sums of this run are over at least {max(2, file.least)} sites, not {least}")
            self.introductions.take(opened.parts)
            file.secure(least)
        return {"kind": "done"}, {}

    def _end(self, opened: Opened) -> tuple[Message, dict[str, bytes]]:
        with self._alone(opened.head, "the end of a run"):
            self._checked_run(opened, over=True).end()
            self.host.forget(opened.head["run"])
            self.store.drop(opened.head["run"])
            self.store.remove_old()
        return {"kind": "done"}, {}

    # Inside.

    @contextmanager
    def _alone(self, head: Message, what: str) -> Iterator[None]:
        """Do one thing at a time; wait for it no longer than the request allows."""
        if not self._lock.acquire(timeout=min(max(float(head["deadline"]), 0.0), threading.TIMEOUT_MAX)):
            raise BusyError(f"late: this site is still busy with {self._busy}")
        try:
            self._busy = what
            yield
        except FedspanError:
            raise
        except BaseException:
            self.store.drop(str(head["run"]))
            raise
        finally:
            self._busy = ""
            self._lock.release()

    def _check_role(self, who: Who, what: str) -> None:
        if who.role not in self.roles:
            raise PolicyError(f"{who.name!r} has the role {who.role!r}, which may not {what} at this site")

    def _check_sender(self, opened: Opened) -> None:
        """Refuse what is not from a user of the federation to this site, in this version."""
        if not opened.who.role:
            raise PolicyError(f"{opened.who.name!r} is not a user of this federation: the certificate has no role")
        after_call(opened, self.site.name)
        theirs, mine = opened.head.get("version"), fedspan_version()
        if theirs != mine and not self.any_version and opened.head["kind"] != "hello":
            raise PolicyError(f"this site runs fedspan {mine}, and the request comes from fedspan {theirs}")

    def _checked_run(self, opened: Opened, over: bool = False) -> RunFile:
        """Return what is kept of a request's run, if it is the sender's, on the same data, and the request is new."""
        run, serial = checked_run(opened.head), int(opened.head["serial"])
        file = self.store.run(run)
        self.store.check_serial(run, serial)
        if not file.is_new and file.who != opened.who.name:
            raise PolicyError(f"the run is another user's, not one of {opened.who.name!r}")
        if file.ended and not over:
            raise PolicyError("the run is over at this site")
        if not file.is_new and file.data != self.fingerprint and not over:
            raise PolicyError("this site's data are no longer those that the run began with: begin a new run")
        if file.is_new:
            file.begin(opened.who.name, self.fingerprint)
        file.see(serial)
        return file

    def _set_threads(self, number: int) -> None:
        """Fix the number of BLAS threads to the run's: it decides the last bits of a result."""
        if not 1 <= number <= _MOST_THREADS:
            raise MessageError(f"a run has from 1 to {_MOST_THREADS} threads, not {number}")
        if self._threads is None or self._threads[0] != number:
            if self._threads is not None:
                self._threads[1].release()
            self._threads = (number, PinnedThreads(number))

    def _note(self, ask: Ask, told: Message) -> None:
        if self.guard is not None:
            with suppress(Exception):  # it is refused anyway
                self.guard.refused(ask, told["why"], told["kind"])

    def _response(self, request: str, head: Message, told: Message, parts: dict[str, bytes] | None = None) -> bytes:
        bound: dict[str, Any] = {name: head[name] for name in ("run", "number", "part") if name in head}
        bound |= {
            "federation": self.authority.federation,
            "version": fedspan_version(),
            "site": self.site.name,
            "instance": self.instance,
            "request": request,
        }
        return Sealed(self.identity, "response", bound | told, parts or {}).to("")


def _kind(opened: Opened) -> str:
    kind = opened.head.get("kind")
    if kind not in ("call", "hello", "introduce", "end"):
        raise MessageError(f"there is no kind of request {str(kind)[:40]!r}")
    return str(kind)


def _keyed(fingerprint: str, secret: bytes) -> str:
    """Return a fingerprint by which nobody can find rows by trying."""
    shapes, _, digest = fingerprint.rpartition("#")
    return f"{shapes}#{blake2b(digest.encode(), key=secret, digest_size=8).hexdigest()}"
