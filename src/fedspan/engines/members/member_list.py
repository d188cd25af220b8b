"""The list of a federation's participants: the root signs it, its version rises, and all others only pass it on.

A participant is known by its certificates, which the list holds. One that is not on the list does not take part, even
with a certificate of the root. So the list is also that of revocations. It has the coordinator's address, the schema of
the tables and the settings of secure sums, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.engines.members.certificates import crypto, fingerprint, read_certificate, read_key
from fedspan.errors import InputError
from fedspan.federation.policy import SecureSum

#: The file of the list in a kit, and its largest size in bytes.
MEMBERS, _LARGEST = "members.json", 2**25
#: Days before the end of a certificate at which its holder is warned, and seconds between two warnings.
WARN_DAYS, DAY = 30, 86400.0
KINDS = ("coordinator", "site", "user")
_PURPOSE = b"fedspan members\0"
_UNREADABLE = "the list of participants cannot be read: 'join' again with that of the authority"


@dataclass(frozen=True)
class Member:
    """A participant: its kind, a user's role, and its certificates (PEM), the newest first."""

    kind: str
    role: str = ""
    certificates: tuple[str, ...] = ()

    @property
    def ends(self) -> datetime:
        """When its newest certificate ends."""
        ends: datetime = read_certificate(self.certificates[0].encode()).not_valid_after_utc
        return ends


@dataclass(frozen=True)
class MemberList:
    """One version of the list. `revoked` has, by fingerprint, whose certificate is no longer valid, and why."""

    federation: str
    server: str
    version: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    revoked: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, str] | None = None
    secure_sum: SecureSum = field(default_factory=SecureSum)
    transport: str = "grpc"

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all participants of a kind, sorted."""
        return tuple(sorted(name for name, member in self.members.items() if member.kind == kind))

    def with_member(self, name: str, member: Member, why: str) -> MemberList:
        """Return the next version, in which `name` is `member`; certificates that it no longer has are revoked."""
        return self._next(dict(self.members) | {name: member}, why)

    def without(self, name: str, why: str) -> MemberList:
        """Return the next version, without a participant."""
        return self._next({other: member for other, member in self.members.items() if other != name}, why)

    def changed(self, **values: Any) -> MemberList:
        """Return the next version, with other settings."""
        return replace(self, version=self.version + 1, **values)

    def _next(self, members: Mapping[str, Member], why: str) -> MemberList:
        def listed(of: Mapping[str, Member]) -> set[str]:
            return {fingerprint(one.encode()) for member in of.values() for one in member.certificates}

        gone = dict.fromkeys(sorted(listed(self.members) - listed(members)), why)
        return replace(self, version=self.version + 1, members=dict(members), revoked={**self.revoked, **gone})

    def objection(self, certificate: bytes, name: str, role: str) -> str:
        """Return why the holder of a certificate of the root does not take part; empty where it does."""
        why = self.revoked.get(fingerprint(certificate))
        if why:
            return f"the certificate of {name!r} was revoked: {why}"
        member = self.members.get(name)
        if member is None or member.role != role or certificate.decode("ascii", "replace") not in member.certificates:
            return f"the certificate of {name!r} is not on the federation's list of participants"
        return ""


def sign_list(members: MemberList, root: bytes, root_key: bytes) -> bytes:
    """Return the list as it travels: its text, the signature of the root's key, and the root's certificate."""
    text = json.dumps(asdict(members))
    signature: bytes = read_key(root_key).sign(_PURPOSE + text.encode(), *crypto().root_scheme)
    return json.dumps({"list": text, "signature": signature.hex(), "root": root.decode()}, indent=1).encode()


def read_list(data: bytes, root: bytes) -> MemberList:
    """Read a list that the root with this certificate has signed."""
    try:
        outer = json_value(data, _LARGEST)
        text, signature = str(outer["list"]), bytes.fromhex(outer["signature"])
        read_certificate(root).public_key().verify(signature, _PURPOSE + text.encode(), *crypto().root_scheme)
        raw = json_value(text, _LARGEST)
        raw["members"] = {
            str(name): Member(str(one["kind"]), str(one["role"]), tuple(map(str, one["certificates"])))
            for name, one in raw["members"].items()
        }
        raw["secure_sum"] = SecureSum(**raw["secure_sum"])
        return MemberList(**raw)
    except crypto().invalid:
        raise InputError("the list of participants is not one that this federation's root has signed") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(_UNREADABLE) from None


def root_of(data: bytes) -> bytes:
    """Return the certificate of the root in a list, which a new participant has yet to trust."""
    try:
        return str(json_value(data, _LARGEST)["root"]).encode()
    except (KeyError, TypeError, ValueError):
        raise InputError(_UNREADABLE) from None


def kit_list(folder: Path) -> MemberList:
    """Read the list of a kit."""
    file = folder / MEMBERS
    try:
        return read_list(file.read_bytes(), (folder / "startup" / "rootCA.pem").read_bytes())
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be read ({error.strerror}): 'join' the federation with its list of participants"
        ) from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def ends_soon(folder: Path, days: float = WARN_DAYS) -> str:
    """Return a sentence where the certificate of a kit ends within this number of days; empty otherwise."""
    file = next(iter(sorted((folder / "startup").glob("*.crt"))), None)
    if file is None:
        return ""
    ends = read_certificate(file.read_bytes()).not_valid_after_utc
    left = (ends - datetime.now(UTC)).days
    if left >= days:
        return ""
    return f"the certificate of {folder} ends on {ends:%Y-%m-%d}, in {left} days: let the authority renew it"
