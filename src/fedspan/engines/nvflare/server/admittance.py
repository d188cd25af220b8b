"""Who is admitted by the coordinator: by the signed list, one process of a kit at a time, and what each role may do.

NVIDIA FLARE lets every certificate of the root register. This judges before it does, and remembers who is behind each
connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedspan.engines.members.certificates import pem, read_certificate, subject_of
from fedspan.engines.members.enrolment import RUNNER
from fedspan.engines.members.member_list import DAY, ends_soon
from fedspan.engines.nvflare.server.study_queue import disabled_sites
from fedspan.engines.nvflare.setup.console_events import REFUSED, report
from fedspan.engines.nvflare.setup.hardening import SILENT_AFTER
from fedspan.engines.remote.messages.identity import Authority, Participant
from fedspan.errors import FedspanError, InputError, MessageError
from fedspan.owner.admission import ANALYST


class Admittance:
    """Judges who may register with the coordinator of a kit, and what a connected user may do.

    `notices` has, by site, a sentence for the screen of the process that is connected. `joined` gets the name of each
    site that has registered.
    """

    def __init__(self, kit: Path, notify: Callable[[str], None] = report) -> None:
        self.kit = kit
        self._notify = notify
        self.authority = Authority.from_kit(kit)
        self._instances: dict[str, str] = {}  # by site: of the kit that is connected
        self._certificates: dict[str, bytes] = {}  # by connection: of the user behind it
        self.notices: dict[str, str] = {}
        self.joined: Callable[[str], None] = lambda name: None
        self.site_versions: dict[str, str] = {}  # by site: the version of fedspan that it states
        self._disabled: dict[str, str] = {}
        self._warned = time.monotonic()

    @property
    def version(self) -> int:
        """The version of the list of participants."""
        return self.authority.version

    @property
    def sites(self) -> frozenset[str]:
        """All sites of the federation."""
        return self.authority.sites

    @property
    def list_bytes(self) -> bytes:
        """The list of participants as it travels."""
        return self.authority.data

    @property
    def disabled(self) -> dict[str, str]:
        """The sites that an operator has disabled, with a sentence."""
        self._disabled = disabled_sites(self.kit, self._disabled)
        return self._disabled

    def objection(self, name: str, certificate: bytes, instance: str = "", heard: float = 0.0, place: str = "") -> str:
        """Return why a process may not register, empty if it may.

        `heard` is the time of the last message of the process that is registered under this name, `place` the address
        of the new one.
        """
        try:
            self.authority.check_listed(certificate, self._holder(certificate))
        except (MessageError, InputError) as error:
            return str(error)
        known = self._instances.get(name, instance)
        if known != instance and time.time() - heard < SILENT_AFTER:
            self.notices[name] = f"another process with a copy of this kit, at {place}, was refused by the coordinator"
            return (
                f"a process with another copy of the kit of {name!r} is connected: stop it first, and wait "
                f"{SILENT_AFTER} seconds; if it is not yours, let the authority replace the key"
            )
        return ""

    def judged(self, name: str, place: str, certificate: bytes, instance: str, heard: float) -> str:
        """Return why a process may not register, as `objection` does, and report it."""
        try:
            certificate = pem(read_certificate(certificate))
            why = self.objection(name, certificate, instance, heard, place)
        except (FedspanError, TypeError, ValueError):
            why = "the request to register cannot be read"
        if why:
            self._notify(f"{name} at {place} was refused: {why}")
        return f"{REFUSED}{why}" if why else ""

    def admitted(self, name: str, certificate: bytes, instance: str, origin: str, version: str = "") -> None:
        """Remember who is behind a connection."""
        if self._holder(certificate).role:
            self._certificates[origin] = pem(read_certificate(certificate))
        else:
            self._instances[name], self.site_versions[name] = instance, version
            self.joined(name)

    def warn(self) -> None:
        """Report once a day that the coordinator's certificate ends soon."""
        if time.monotonic() - self._warned > DAY:
            self._warned = time.monotonic()
            if soon := ends_soon(self.kit):
                self._notify(soon)

    def repair(self) -> None:
        """Write the list again where its file was damaged while this process ran, and is not just being copied."""
        if why := self.authority.repair():
            self._notify(why)

    def user(self, origin: str) -> Participant | None:
        """Return the user behind a connection, or refuse it with a `MessageError`; ``None`` where it is not known."""
        certificate = self._certificates.get(origin)
        if certificate is None:
            return None
        holder = self._holder(certificate)
        self.authority.check_listed(certificate, holder)
        return holder

    def may_call(self, user: Participant) -> str:
        """Return why a user may send no requests to sites; empty if it may."""
        if user.role in (ANALYST, RUNNER):
            return ""
        return f"{user.name!r} has the role {user.role!r}, which may not run steps"

    @staticmethod
    def _holder(certificate: bytes) -> Participant:
        return Participant(*subject_of(read_certificate(certificate)))
