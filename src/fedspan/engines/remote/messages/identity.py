"""Identities: certificates that the federation's root has issued, signatures, and delegation.

A kit's certificate has the participant's name in its common name and, for users, the role in its unstructured name; a
site has no role. Keys are RSA. The federation's list of participants decides
which certificates are valid (`fedspan.engines.members`).

A user may authorise the coordinator to send requests in the user's name, for runs that outlast the user's process. The
delegate signs with its own key; sites see the user's name and role, and check both signatures. While the delegation is
valid, the delegate can request whatever the user could. So it is valid for a short time, and for one participant.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.certificates import (
    CLOCKS_DIFFER,
    LEAST_BITS,
    crypto,
    pem,
    read_certificate,
    read_key,
    subject_of,
)
from fedspan.engines.members.member_list import MEMBERS, MemberList, kit_list, read_list
from fedspan.errors import InputError, MessageError
from fedspan.federation.policy import SecureSum
from fedspan.wire import as_array, decode, encode

_MOST_CHECKED = 256
#: Seconds after which all that are connected have a list that the coordinator hands out.
_KNOWN_TO_ALL = 60.0
_DELEGATION = b"fedspan delegation\0"
#: Seconds after which a file without a list of participants no longer counts as one that is being copied.
_COPYING = 10.0
#: Bytes and seconds of a delegation.
_LARGEST, _LONGEST = 2**14, 30 * 86400.0


@dataclass(frozen=True)
class Participant:
    """A name and a role, as a certificate has them. Sites have no role."""

    name: str
    role: str = ""


class Identity:
    """A certificate and its private key, which does not leave this process.

    Parameters
    ----------
    certificate, key : bytes
        Both PEM; the key without a password.
    """

    #: It signs in its own name.
    delegation = b""
    _renewed = 0.0  # when a newer certificate was first seen

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self._key = read_key(key)
        issued = read_certificate(certificate)
        if self._key.public_key() != issued.public_key():
            raise InputError("the private key does not belong to the certificate")
        self.certificate = pem(issued)
        self.participant = _participant(issued)
        self.name, self.role = self.participant.name, self.participant.role

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.role!r})"

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        signature: bytes = self._key.sign(message, *crypto().scheme)
        return signature

    def follow(self, members: MemberList | None) -> None:
        """Use the newest certificate of this key that the list has: the authority may have renewed it.

        The current one is used for a while longer, until all others have the list.
        """
        member = None if members is None else members.members.get(self.name)
        listed = () if member is None else member.certificates
        if not listed or listed[0].encode() == self.certificate:
            self._renewed = 0.0
            return
        self._renewed = self._renewed or time.monotonic()
        if self.certificate.decode() in listed and time.monotonic() - self._renewed < _KNOWN_TO_ALL:
            return
        for one in listed:
            issued = read_certificate(one.encode())
            if issued.public_key() == self._key.public_key() and _participant(issued) == self.participant:
                self.certificate = one.encode()
                return

    @classmethod
    def from_kit(cls, folder: Path | str) -> Identity:
        """Read certificate and key of a participant's kit."""
        startup = Path(folder) / "startup"
        for name in ("client", "server"):
            if (startup / f"{name}.crt").exists():
                return cls(_bytes_of(startup / f"{name}.crt"), _bytes_of(startup / f"{name}.key"))
        raise InputError(f"{str(folder)!r} is not a kit: there is no certificate in its folder 'startup'")


class UnlistedError(MessageError):
    """A certificate of the root is not, or no longer, on the list of participants."""


class Authority:
    """The root of a federation: decides which certificates are valid.

    Parameters
    ----------
    root : bytes
        The root's certificate, PEM.
    federation : str
        The federation's name. Messages of another one are refused.
    sites : names, optional
        All sites of the federation, where they are known.
    secure_sum : SecureSum, optional
        The federation's settings of secure sums.
    members : MemberList, optional
        The signed list of participants, which has the sites and the settings, too. Without it every certificate of the
        root is valid.
    file : path, optional
        Where the list is. It is read again when it has changed.
    """

    def __init__(
        self,
        root: bytes,
        federation: str,
        sites: Iterable[str] = (),
        secure_sum: SecureSum | None = None,
        members: MemberList | None = None,
        file: Path | None = None,
    ) -> None:
        self._pem = root
        self._root = read_certificate(root)
        self.federation = federation
        self._sites = frozenset(sites)
        self._secure_sum = secure_sum or SecureSum()
        self._members = members
        self.data = b""  # the list as it travels, where it has a file
        self._damaged = 0.0  # since when the file is not this list, by the monotonic clock
        self._file = file
        self._seen = _stamp(file)
        self._checked: dict[bytes, Any] = {}

    @classmethod
    def from_kit(cls, folder: Path | str) -> Authority:
        """Read the root's certificate and the list of participants from a kit, and follow the list."""
        folder = Path(folder)
        members = kit_list(folder)
        root = _bytes_of(folder / "startup" / "rootCA.pem")
        made = cls(root, members.federation, members=members, file=folder / MEMBERS)
        made.data = _bytes_of(folder / MEMBERS)
        return made

    @property
    def members(self) -> MemberList | None:
        """The newest list of participants, read again if its file has changed."""
        if self._file is not None and (seen := _stamp(self._file)) != self._seen:
            self._seen = seen
            with suppress(InputError):  # being copied, or damaged: the list that is known stays valid
                data = _bytes_of(self._file)
                self.take(read_list(data, self._pem), data)
        return self._members

    @property
    def version(self) -> int:
        """The version of the list of participants."""
        members = self.members
        return -1 if members is None else members.version

    @property
    def sites(self) -> frozenset[str]:
        """All sites of the federation, where they are known."""
        members = self.members
        return self._sites if members is None else frozenset(members.names("site"))

    @property
    def secure_sum(self) -> SecureSum:
        """The federation's settings of secure sums."""
        members = self.members
        return self._secure_sum if members is None else members.secure_sum

    def take(self, offered: MemberList, data: bytes = b"") -> None:
        """Follow a list that is not older than the one that is known; `data` is the list as it travels."""
        if offered.federation != self.federation:
            raise InputError(f"the list of participants is that of the federation {offered.federation!r}")
        if self._members is not None and offered.version < self._members.version:
            raise InputError(
                f"the list of participants has the version {offered.version}, and version {self._members.version} is "
                "known already"
            )
        self.data = data or self.data  # before the version: another thread would hand out old bytes as the new list
        self._members = offered

    def repair(self) -> str:
        """Write the list again where its file was damaged for a while, and return a sentence about it.

        A file that is just being copied is left alone, and a newer list is followed.
        """
        known = self.members
        if self._file is None or known is None:
            return ""
        if self._file.is_file() and self._file.read_bytes() == self.data:
            self._damaged = 0.0
            return ""
        self._damaged = self._damaged or time.monotonic()
        if time.monotonic() - self._damaged < _COPYING:
            return ""
        write_whole(self._file, self.data)
        self._damaged = 0.0
        return f"{self._file.name} was damaged or older: version {known.version} is written again"

    @property
    def ends(self) -> datetime:
        """When the root's certificate ends, and all others with it."""
        ends: datetime = self._root.not_valid_after_utc
        return ends

    def verify(self, certificate: bytes, signature: bytes, message: bytes) -> Participant:
        """Return the signer of `message`, or refuse it with a `MessageError`."""
        issued = self._checked.get(certificate)
        if issued is None:
            issued = self._check(certificate)
            if len(self._checked) < _MOST_CHECKED:
                self._checked[certificate] = issued
        signer = _participant(issued)
        now = datetime.now(UTC)
        for one, whose in ((issued, f"the certificate of {signer.name!r}"), (self._root, "the root certificate")):
            if now > one.not_valid_after_utc or now + CLOCKS_DIFFER < one.not_valid_before_utc:
                raise MessageError(
                    f"{whose} is not valid today: let the authority renew it, or set this machine's clock"
                )
        try:
            issued.public_key().verify(signature, message, *crypto().scheme)
        except crypto().invalid:
            raise MessageError(f"the signature is not one of {signer.name!r} on this message") from None
        self.check_listed(certificate, signer)
        return signer

    def check_listed(self, certificate: bytes, holder: Participant) -> None:
        """Refuse a certificate of the root that is not, or no longer, on the list of participants."""
        members = self.members
        why = "" if members is None else members.objection(certificate, holder.name, holder.role)
        if why:
            raise UnlistedError(why)

    def _check(self, certificate: bytes) -> Any:
        """Return a certificate that this root has issued to a participant."""
        try:
            issued = read_certificate(certificate)
        except InputError:
            issued = None
        if issued is None or pem(issued) != certificate:  # one certificate has one encoding
            raise MessageError("the sender's certificate cannot be read")
        try:
            issued.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, crypto().invalid):
            raise MessageError("the sender's certificate was not issued by the root of this federation") from None
        key = issued.public_key()
        if not isinstance(key, crypto().rsa.RSAPublicKey) or key.key_size < LEAST_BITS:
            raise MessageError(f"the sender's key is not an RSA key of at least {LEAST_BITS} bits")
        try:
            is_authority = issued.extensions.get_extension_for_class(crypto().x509.BasicConstraints).value.ca
        except crypto().x509.ExtensionNotFound:
            is_authority = False
        if is_authority or not _participant(issued).name:
            raise MessageError("the sender's certificate is not one of a participant")
        return issued


class Delegate:
    """Signs in the name of the user that made the `delegation`, with the key of its own `identity`."""

    def __init__(self, identity: Identity, delegation: bytes, authority: Authority) -> None:
        self._identity = identity
        self.delegation = delegation
        self.participant = check_delegation(delegation, authority, identity.participant)

    @property
    def certificate(self) -> bytes:
        """The delegate's own certificate."""
        return self._identity.certificate

    def follow(self, members: MemberList | None) -> None:
        """Use the newest certificate of the delegate's key that the list has."""
        self._identity.follow(members)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, made with the delegate's own key."""
        return self._identity.sign(message)


#: Signs messages: a participant, or a delegate of a user.
Signer = Identity | Delegate


def make_delegation(user: Identity, to: str, federation: str, seconds: float) -> bytes:
    """Authorise the participant `to` to act in the name of `user` from now on for this number of seconds."""
    if not user.role:
        raise InputError(f"{user.name!r} is not a user, and has nothing to delegate")
    if not 0 < seconds <= _LONGEST:
        raise InputError(f"seconds={seconds!r} of a delegation must be above 0 and at most 30 days")
    head = encode({"federation": federation, "to": to, "until": time.time() + seconds})
    signature = user.sign(_DELEGATION + head)
    return encode({"head": as_array(head), "signature": as_array(signature), "certificate": as_array(user.certificate)})


def check_delegation(delegation: bytes, authority: Authority, delegate: Participant) -> Participant:
    """Return the user in whose name `delegate` may act, or refuse with a `MessageError`."""
    try:
        outer = decode(delegation, _LARGEST)
        raw, signature, certificate = (outer[name].tobytes() for name in ("head", "signature", "certificate"))
        user = authority.verify(certificate, signature, _DELEGATION + raw)
        head = decode(raw, _LARGEST)
        to, federation, until = str(head["to"]), str(head["federation"]), float(head["until"])
    except MessageError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MessageError("the delegation cannot be read") from error
    if federation != authority.federation:
        raise MessageError("the delegation is of another federation")
    if not user.role or delegate != Participant(to):
        raise MessageError(f"{user.name!r} has not delegated anything to {delegate.name!r}")
    if not time.time() <= until:  # not a number: never valid
        raise MessageError(f"the delegation of {user.name!r} to {to!r} has expired")
    return user


def _participant(certificate: Any) -> Participant:
    return Participant(*subject_of(certificate))


def _stamp(path: Path | None) -> object:
    """Return a value that changes with a file."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        found = None
    return found and (found.st_ino, found.st_size, found.st_mtime_ns)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
