"""The site worker: answers requests at one site, and keeps the state of its runs on the site's disk."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.engines.remote.messages.envelope import Opened, Sealed, head_digest, open_sealed
from fedspan.engines.remote.messages.environment import environment, fedspan_version
from fedspan.engines.remote.messages.identity import Authority, Identity, Participant
from fedspan.engines.remote.messages.key_exchange import KeyExchange
from fedspan.engines.remote.messages.refusals import BusyError, StepError, refusal
from fedspan.engines.remote.messages.request_head import RequestHead, SiteCall, read_head, site_call
from fedspan.engines.remote.site.run_file import RunFile
from fedspan.engines.remote.site.site_store import SiteStore
from fedspan.engines.remote.site.step_process import StepProcess, default_memory
from fedspan.errors import DiskError, FedspanError, InputError, PolicyError, with_note
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.call_context import OversizeError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.site import Site
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.step_digests import digests
from fedspan.federation.site.steps import find_step
from fedspan.owner.admission import Admission, OwnerRequest
from fedspan.owner.decisions import WAITING
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import DEFAULT_MAX_BYTES, Message

#: Head and parts of a response.
Response = tuple[Message, dict[str, bytes]]


class SiteWorker:
    """Answers requests at one site, one at a time: a late call never overlaps the next one.

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
    admission : Admission, optional
        Checks requests by the owner's rules. Without it every analyst may run every step.
    describe : callable, optional
        Returns what the owner publishes about the site.
    """

    #: Bytes of the largest request.
    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        site: Site,
        folder: Path | str,
        identity: Identity,
        authority: Authority,
        admission: Admission | None = None,
        describe: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        if identity.participant != Participant(site.name):
            raise InputError(
                f"the site is called {site.name!r}, and its certificate is that of {identity.name!r}"
                f"{f' with the role {identity.role!r}' if identity.role else ''}: they must have one name"
            )
        install_steps()
        self.site = site
        self.admission = admission or Admission(site)
        self.steps = StepProcess(site, self.admission.step_memory or default_memory())
        self.admission.fewest = self.steps.fewest
        self.store = SiteStore(Path(folder))
        self.host = SiteHost(site, Vault(filling=self.store.secret()), records=self.store, runner=self.steps)
        self.host.vault.take(authority.secure_sum)
        self.keys = KeyExchange(identity, authority, self.host.vault, self.store.later())
        self.fingerprint = _keyed(site.fingerprint(), self.store.secret())
        self._identity = identity
        self._authority = authority
        self._followed = (authority.version, identity.certificate)
        self._describe = describe
        self.notify: Callable[[str], None] = lambda line: None  # gets what the owner is to see
        self._announced: set[str] = set()  # studies that wait for the owner
        self._instance = secrets.token_hex(8)  # of this process: what is not on the disk is lost with it
        self._lock = threading.Lock()
        self._busy = ""

    def answer(self, data: bytes | memoryview) -> bytes:
        """Answer a request, whatever it holds, with signed bytes: a reply, or the reason for a refusal."""
        request, opened = OwnerRequest(), None
        self._identity.follow(self._authority.members)
        if (self._authority.version, self._identity.certificate) != self._followed:
            self._followed = (self._authority.version, self._identity.certificate)
            self.keys.follow()
        try:
            opened = open_sealed(data, self._authority, "request", self.site.name, self.max_bytes)
            head, parts = self._answered(opened, request)
        except Exception as error:
            head, parts = self._refused(request, error), {}
        bound: dict[str, Any] = {
            "federation": self._authority.federation,
            "version": fedspan_version(),
            "site": self.site.name,
            "instance": self._instance,
            "request": head_digest(data) if opened is None else opened.digest,
        }
        if opened is not None:
            bound |= {name: opened.head[name] for name in ("run", "number", "part") if name in opened.head}
        return Sealed(self._identity, "response", bound | head, parts).to("")

    def close(self) -> None:
        """End the site's other processes, and release its folder."""
        self.steps.close()
        self.store.close()

    def _answered(self, opened: Opened, request: OwnerRequest) -> Response:
        """Read a signed request, complete `request` on the way, check it by the owner's rules, and do it."""
        request.user, request.role = opened.sender.name, opened.sender.role
        request.run, request.step = (
            value if isinstance(value := opened.head.get(name), str) else "" for name in ("run", "step")
        )
        head = read_head(opened.head)
        request.kind, request.number, request.part = head.kind, head.number, head.part
        request.how, request.stage, request.study = head.how, head.stage, head.study
        request.transforms = tuple(id for id, _ in head.transforms)
        self.admission.check_sender(request, head.sites, head.version)
        if head.kind == "hello":
            return self._hello(request, head)
        self.admission.check_user(request)
        if head.kind == "propose":
            return self._propose(opened, head, request)
        seconds = min(head.deadline - min(1.0, head.deadline / 10), self.admission.step_seconds)
        until = time.monotonic() + seconds
        with self._alone(head, f"call {head.number}" if head.number >= 0 else head.kind):
            self.steps.begin(until - time.monotonic(), seconds, head.threads)
            file = self._checked_run(opened.sender, head)
            if head.kind in ("call", "redo"):
                return self._reply(opened, head, request, file)
            if head.kind == "keys":
                self._accept_keys(opened, head, file)
            else:
                self._end_run(head, file)
            self.admission.release(request, 0)
            return {"kind": "done"}, {}

    def _refused(self, request: OwnerRequest, error: Exception) -> Message:
        """Return what the sender learns of an error; log that, and what is for the site's own log alone."""
        head = refusal(error)
        if isinstance(error, DiskError):
            self.notify(f"{error}: free space, and runs go on")
        with suppress(Exception):  # the request is refused in any case
            why = "; ".join([head["why"], *getattr(error, "__notes__", ())])
            self.admission.refused(request, head["kind"], why)
        return head

    # The kinds of requests.

    def _hello(self, request: OwnerRequest, head: RequestHead) -> Response:
        """Report what this site is, and has of a run; a user without access learns that it exists, and its version."""
        about: dict[str, Any] = {"version": fedspan_version()}
        try:
            self.admission.check_user(request)
        except PolicyError as error:
            self._refused(request, error)
            return {"kind": "about"}, {"about": json.dumps(about | {"refused": str(error)}).encode()}
        busy = self.admission.paused() or self._busy
        about |= {"environment": environment(), "fingerprint": self.fingerprint, "busy": busy, "steps": digests()}
        about["max_bytes"] = self.max_bytes
        if head.run and not self._busy:
            with self._alone(head, "hello"):
                file = self.store.run(head.run)
                if file.is_new or (file.who == request.user and not file.ended):
                    about["calls"] = file.held_calls
        parts = {"about": json.dumps(about).encode(), "key": self.keys.own}
        if self._describe is not None:
            parts["owner"] = json.dumps(self._describe()).encode()
        self.admission.release(request, sum(map(len, parts.values())))
        return {"kind": "about"}, parts

    def _propose(self, opened: Opened, head: RequestHead, request: OwnerRequest) -> Response:
        """Note a study that the user proposes, and report the owner's decision about it."""
        decided = self.admission.propose(request, bytes(opened.parts["plan"]))
        if decided["state"] == WAITING and request.study not in self._announced:
            self._announced.add(request.study)
            self.notify(f"a study of {request.user} waits for your approval: {request.study[:100]}")
        about = json.dumps(decided).encode()
        self.admission.release(request, len(about))
        return {"kind": "proposal"}, {"about": about}

    def _reply(self, opened: Opened, head: RequestHead, request: OwnerRequest, file: RunFile) -> Response:
        call = site_call(opened, head, self.site.name)
        request.payload, request.views = call.payload, call.transforms
        request.summed = bool(head.stage or file.least)
        if call.step.runs is not None:  # the owner's rules are about the step whose replies are added up
            request.step, inner = call.step.runs(call.payload)
            request.payload = find_step(request.step).validated(inner)
        elif head.kind == "redo":  # no reply leaves, but what it does to the state may, where single replies do
            request.stage = "redo"
        elif head.stage:
            request.step, request.payload = self.host.vault.about(call.session) or request.step, None
        request.repeated = self.host.given_before(call) is not None
        self.admission.check_call(request)
        delivery = self._performed(call, head, file)
        if head.kind == "redo":
            self.admission.release(request, 0)
            return {"kind": "done"}, {}
        reply = file.reply_bytes(delivery)
        if len(reply) > head.max_bytes:
            oversize = OversizeError(f"the reply has more than the {head.max_bytes:,} bytes allowed")
            raise with_note(oversize, f"it has {len(reply):,}")
        self.admission.release(request, len(reply))
        return {"kind": "reply", "rows": delivery.rows}, {"reply": reply}

    def _performed(self, call: SiteCall, head: RequestHead, file: RunFile) -> Delivery:
        vault = self.host.vault
        vault.sums_only = file.least > 0
        vault.least = max(vault.settings.least, self.admission.least_sites, file.least)
        self.host.largest = min(head.max_bytes, self.admission.largest_reply or head.max_bytes)
        try:
            return self.host.perform(call, call.payload, head.sites[self.site.name], silent=head.kind == "redo")
        except FedspanError:
            raise
        except Exception as error:
            raise StepError(call.step.id, type(error).__name__) from None

    def _accept_keys(self, opened: Opened, head: RequestHead, file: RunFile) -> None:
        """Store the keys of the other sites for the secure sums of a run, which gets no other replies from now on."""
        least = max(2, file.least)
        if head.least < least:
            raise PolicyError(f"the sums of this run are over at least {least} sites, not {head.least}")
        self.keys.accept(opened.parts)
        file.secure(head.least)

    def _end_run(self, head: RequestHead, file: RunFile) -> None:
        file.end()
        self.host.forget(head.run)
        self.store.drop(head.run)
        self.store.remove_old()

    # What they share.

    @contextmanager
    def _alone(self, head: RequestHead, what: str) -> Iterator[None]:
        """Hold the site for one request; wait for it no longer than the request allows."""
        if not self._lock.acquire(timeout=min(head.deadline, threading.TIMEOUT_MAX)):
            raise BusyError(f"this site is still busy with {self._busy}")
        try:
            self._busy = what
            yield
        except BaseException:
            self.store.drop(head.run)  # the disk's state counts
            raise
        finally:
            self._busy = ""
            self._lock.release()

    def _checked_run(self, sender: Participant, head: RequestHead) -> RunFile:
        """Return the file of a request's run, if it is the sender's, on the same data, and the request is new."""
        file, ending = self.store.run(head.run), head.kind == "end"
        self.store.check_serial(head.run, head.serial)
        if file.is_new:
            file.begin(sender.name, self.fingerprint)
        elif file.who != sender.name:
            raise PolicyError(f"the run is another user's, not one of {sender.name!r}")
        elif file.ended and not ending:
            raise PolicyError("the run is over at this site")
        elif file.data != self.fingerprint and not ending:
            raise PolicyError("this site's data are no longer those that the run began with: begin a new run")
        file.see(head.serial)
        return file


def _keyed(fingerprint: str, secret: bytes) -> str:
    """Return a fingerprint that does not help to guess rows."""
    shapes, _, digest = fingerprint.rpartition("#")
    return f"{shapes}#{blake2b(digest.encode(), key=secret, digest_size=8).hexdigest()}"
