"""The site's side: one object per site process, which answers requests and keeps what it said on the site's disk."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.engines.local.blas_threads import PinnedThreads
from fedspan.engines.remote.messages.envelope import Opened, Sealed, head_digest, open_sealed
from fedspan.engines.remote.messages.environment import environment, fedspan_version
from fedspan.engines.remote.messages.identity import Authority, Identity, Who
from fedspan.engines.remote.messages.key_exchange import Introductions
from fedspan.engines.remote.messages.request_head import Head, read_head
from fedspan.engines.remote.messages.site_call import SiteCall, site_call
from fedspan.engines.remote.site.admission import Asked, Door
from fedspan.engines.remote.site.owner_requests import NOBODY, ask_of_call, ask_of_head, ask_of_nonsense
from fedspan.engines.remote.site.refusals import BusyError, StepError
from fedspan.engines.remote.site.run_file import RunFile
from fedspan.engines.remote.site.site_store import SiteStore
from fedspan.errors import FedspanError, InputError, MessageError, PolicyError, with_note
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.site import Site
from fedspan.federation.site.site_host import SiteHost
from fedspan.owner.owner_request import Ask, Guard, NoRules
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import DEFAULT_MAX_BYTES, Message

#: Roles that may run protocols. Whoever has another one learns that the site is there, and its version.
ROLES = ("project_admin", "lead")
Answer = tuple[Message, dict[str, bytes]]


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
        self.guard: Guard = NoRules() if guard is None else guard
        self.max_bytes = max_bytes
        self.door = Door(site.name, self.guard, roles, any_version)
        self.steps = tuple(install_steps())
        self.store = SiteStore(Path(folder))
        self.host = SiteHost(site, Vault(), records=self.store)
        self.introductions = Introductions(identity, authority, self.host.vault)
        self.instance = secrets.token_hex(8)  # of this process: what it does not write down is lost with it
        self.fingerprint = _keyed(site.fingerprint(), self.store.secret())
        self._lock = threading.Lock()
        self._busy = ""
        self._threads: tuple[int, PinnedThreads] | None = None

    def answer(self, request: bytes) -> bytes:
        """Answer a request. Whatever it holds, the answer is a signed one: a reply, or a sentence that says why not."""
        try:
            opened = open_sealed(request, self.authority, "request", self.site.name, self.max_bytes)
        except Exception as error:
            told = self.door.refused(Asked(NOBODY), error)
            return self._response(head_digest(request, self.max_bytes), {}, told)
        asked = Asked(ask_of_nonsense(opened.head, opened.who))
        try:
            head = read_head(opened.head)
            asked.ask = ask_of_head(head, opened.who)
            self.door.check_sender(opened.who, head)
            kinds = {"call": self._call, "hello": self._greeting, "introduce": self._introduce, "end": self._end}
            told, parts = kinds[head.kind](opened, head, asked)
        except Exception as error:
            told, parts = self.door.refused(asked, error), {}
        return self._response(opened.digest, opened.head, told, parts)

    def close(self) -> None:
        """Let go of the site's folder."""
        self.store.close()
        if self._threads is not None:
            self._threads[1].release()

    # The kinds of requests.

    def _call(self, opened: Opened, head: Head, asked: Asked) -> Answer:
        self.door.welcome(asked.ask, "run anything")
        with self._alone(head, f"call {head.number}"):
            file = self._checked_run(opened.who, head)
            call = site_call(opened, head, self.site.name)
            ask = ask_of_call(call, opened.who, self.host.vault, first=file.state.pending_number is None)
            asked.ask = replace(ask, repeated=self.host.given_before(call) is not None)
            self.guard.admit(asked.ask)
            asked.ran = not asked.ask.repeated
            self.guard.look(asked.ask)
            return self._reply(asked.ask, head, self._performed(call, head, file))

    def _performed(self, call: SiteCall, head: Head, file: RunFile) -> Delivery:
        self._set_threads(head.threads)
        vault = self.host.vault
        vault.sums_only, vault.least = file.least > 0, max(2, file.least)
        limits = (head.max_bytes, self.guard.largest_reply)
        self.host.largest = min(limit for limit in limits if limit is not None)
        try:
            return self.host.perform(call, call.payload, head.sites[self.site.name])
        except FedspanError:
            raise
        except (Exception, SystemExit) as error:
            self.store.drop(call.run)  # what is on the disk counts
            raise StepError(call.step.id, error) from None

    def _reply(self, ask: Ask, head: Head, delivery: Delivery) -> Answer:
        reply = self.store.run(ask.run).reply_bytes(delivery)
        if len(reply) > head.max_bytes:
            raise with_note(
                MessageError(f"oversize: the reply has more than the {head.max_bytes} bytes allowed"),
                f"it has {len(reply)}",
            )
        self.guard.release(ask, len(reply))
        return {"kind": "reply", "rows": delivery.rows}, {"reply": reply}

    def _greeting(self, opened: Opened, head: Head, asked: Asked) -> Answer:
        """Say what this site is; to those who may not ask it anything, that it is there, and its version."""
        try:
            self.door.welcome(asked.ask, "ask anything")
        except PolicyError as error:
            self.door.refused(asked, error)
            stranger = {"version": fedspan_version(), "stranger": str(error)}
            return {"kind": "about"}, {"about": json.dumps(stranger).encode()}
        told, parts = self._hello(opened)
        self.guard.release(asked.ask, sum(map(len, parts.values())))
        return told, parts

    def _hello(self, opened: Opened) -> Answer:
        about = {
            "version": fedspan_version(),
            "environment": environment(),
            "fingerprint": self.fingerprint,
            "steps": self.steps,
            "busy": self._busy,
        }
        parts = {"about": json.dumps(about).encode(), "introduction": self.introductions.own}
        return {"kind": "about"}, parts

    def _introduce(self, opened: Opened, head: Head, asked: Asked) -> Answer:
        """Learn the keys of the other sites, for the secure sums of a run, and answer it by such sums only."""
        self.door.welcome(asked.ask, "introduce anybody")
        with self._alone(head, "an introduction"):
            file = self._checked_run(opened.who, head)
            if head.least < max(2, file.least):
                least = max(2, file.least)
                raise PolicyError(f"the sums of this run are over at least {least} sites, not {head.least}")
            self.introductions.take(opened.parts)
            file.secure(head.least)
            return self._done(asked.ask)

    def _end(self, opened: Opened, head: Head, asked: Asked) -> Answer:
        self.door.welcome(asked.ask, "end a run")
        with self._alone(head, "the end of a run"):
            self._checked_run(opened.who, head, over=True).end()
            self.host.forget(head.run)
            self.store.drop(head.run)
            self.store.remove_old()
            return self._done(asked.ask)

    def _done(self, ask: Ask) -> Answer:
        self.guard.release(ask, 0)
        return {"kind": "done"}, {}

    # Inside.

    @contextmanager
    def _alone(self, head: Head, what: str) -> Iterator[None]:
        """Do one thing at a time; wait for it no longer than the request allows."""
        if not self._lock.acquire(timeout=min(max(head.deadline, 0.0), threading.TIMEOUT_MAX)):
            raise BusyError(f"late: this site is still busy with {self._busy}")
        try:
            self._busy = what
            yield
        except FedspanError:
            raise
        except BaseException:
            self.store.drop(head.run)
            raise
        finally:
            self._busy = ""
            self._lock.release()

    def _checked_run(self, who: Who, head: Head, over: bool = False) -> RunFile:
        """Return what is kept of a request's run, if it is the sender's, on the same data, and the request is new."""
        file = self.store.run(head.run)
        self.store.check_serial(head.run, head.serial)
        if not file.is_new and file.who != who.name:
            raise PolicyError(f"the run is another user's, not one of {who.name!r}")
        if file.ended and not over:
            raise PolicyError("the run is over at this site")
        if not file.is_new and file.data != self.fingerprint and not over:
            raise PolicyError("this site's data are no longer those that the run began with: begin a new run")
        if file.is_new:
            file.begin(who.name, self.fingerprint)
        file.see(head.serial)
        return file

    def _set_threads(self, number: int) -> None:
        """Fix the number of BLAS threads to the run's: it decides the last bits of a result."""
        if self._threads is None or self._threads[0] != number:
            if self._threads is not None:
                self._threads[1].release()
            self._threads = (number, PinnedThreads(number))

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


def _keyed(fingerprint: str, secret: bytes) -> str:
    """Return a fingerprint by which nobody can find rows by trying."""
    shapes, _, digest = fingerprint.rpartition("#")
    return f"{shapes}#{blake2b(digest.encode(), key=secret, digest_size=8).hexdigest()}"
