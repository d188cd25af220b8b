"""Identities: certificates that the federation's root has issued, signatures, and delegation.

A kit's certificate has the participant's name in its common name and, for users, the role in its unstructured name; a
site has no role. Keys are RSA. `cryptography` is imported when a certificate or key is first read.

A user may authorise the coordinator to send requests in the user's name, for runs that outlast the user's process. The
delegate signs with its own key; sites see the user's name and role, and check both signatures. While the delegation is
valid, the delegate can request whatever the user could. So it is valid for a short time, and for one participant.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedspan.checks import json_value
from fedspan.errors import InputError, MessageError, MissingPackageError
from fedspan.federation.policy import SecureSum
from fedspan.wire import as_array, decode, encode

#: Clocks may differ by this much when a certificate has just been issued.
_CLOCKS_DIFFER = timedelta(minutes=5)
_LEAST_BITS = 2048
_MOST_CHECKED = 256
_DELEGATION = b"fedspan delegation\0"
#: Bytes and seconds of a delegation.
_LARGEST, _LONGEST = 2**14, 30 * 86400.0


@cache
def _crypto() -> SimpleNamespace:
    """Import `cryptography`, with the one way of padding and hashing that signatures use."""
    try:
        from cryptography import exceptions, x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        raise MissingPackageError(
            'a real federation needs cryptography, which is not installed: pip install "fedspan[secure]"'
        ) from None
    scheme = (padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32), hashes.SHA256())
    invalid = exceptions.InvalidSignature
    # Settings are signed by a scheme without randomness: kits that are made again have the same bytes.
    root_scheme = (padding.PKCS1v15(), hashes.SHA256())
    return SimpleNamespace(
        x509=x509, rsa=rsa, serialization=serialization, invalid=invalid, scheme=scheme, root_scheme=root_scheme
    )


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

    def __init__(self, certificate: bytes, key: bytes) -> None:
        crypto = _crypto()
        try:
            self._key = crypto.serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError):
            raise InputError("the private key cannot be read: it must be PEM, without a password") from None
        issued = _read(certificate)
        if not isinstance(self._key, crypto.rsa.RSAPrivateKey) or self._key.public_key() != issued.public_key():
            raise InputError("the private key does not belong to the certificate")
        self.certificate = _pem(issued)
        self.participant = _participant(issued)
        self.name, self.role = self.participant.name, self.participant.role

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.role!r})"

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        signature: bytes = self._key.sign(message, *_crypto().scheme)
        return signature

    @classmethod
    def from_kit(cls, folder: Path | str) -> Identity:
        """Read certificate and key of a participant's kit."""
        startup = Path(folder) / "startup"
        for name in ("client", "server"):
            if (startup / f"{name}.crt").exists():
                return cls(_bytes_of(startup / f"{name}.crt"), _bytes_of(startup / f"{name}.key"))
        raise InputError(f"{str(folder)!r} is no kit: there is no certificate in its folder 'startup'")


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
    """

    def __init__(
        self, root: bytes, federation: str, sites: Iterable[str] = (), secure_sum: SecureSum | None = None
    ) -> None:
        self._root = _read(root)
        self.federation = federation
        self.sites = frozenset(sites)
        self.secure_sum = secure_sum or SecureSum()
        self._checked: dict[bytes, Any] = {}

    @classmethod
    def from_kit(cls, folder: Path | str) -> Authority:
        """Read the root's certificate, the federation's name and sites, and its signed settings from a kit."""
        file = Path(folder) / "fedspan.json"
        try:
            about = json_value(_bytes_of(file))
            federation, sites = str(about["federation"]), tuple(map(str, about["sites"]))
            signed = about.get("secure_sum")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(f"{file} is damaged; request the kit again") from None
        authority = cls(_bytes_of(Path(folder) / "startup" / "rootCA.pem"), federation, sites)
        if signed is not None:
            authority.secure_sum = authority._settings(signed)
        return authority

    def _settings(self, signed: Mapping[str, Any]) -> SecureSum:
        """Return the settings of secure sums, if the root has signed them."""
        crypto = _crypto()
        try:
            values = {name: value for name, value in signed.items() if name != "signature"}
            message = _settings_message(self.federation, values)
            self._root.public_key().verify(bytes.fromhex(signed["signature"]), message, *crypto.root_scheme)
            return SecureSum(**values)
        except (AttributeError, KeyError, TypeError, ValueError, crypto.invalid):
            raise InputError(
                "the kit's settings of secure sums are not those that the federation's root has signed: request the "
                "kit again"
            ) from None

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
            if now > one.not_valid_after_utc or now + _CLOCKS_DIFFER < one.not_valid_before_utc:
                raise MessageError(f"{whose} is not valid today: renew the kits, or set this machine's clock")
        try:
            issued.public_key().verify(signature, message, *_crypto().scheme)
        except _crypto().invalid:
            raise MessageError(f"the signature is not one of {signer.name!r} on this message") from None
        return signer

    def _check(self, certificate: bytes) -> Any:
        """Return a certificate that this root has issued to a participant."""
        crypto = _crypto()
        try:
            issued = _read(certificate)
        except InputError:
            issued = None
        if issued is None or _pem(issued) != certificate:  # one certificate has one encoding
            raise MessageError("the sender's certificate cannot be read")
        try:
            issued.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, crypto.invalid):
            raise MessageError("the sender's certificate was not issued by the root of this federation") from None
        key = issued.public_key()
        if not isinstance(key, crypto.rsa.RSAPublicKey) or key.key_size < _LEAST_BITS:
            raise MessageError(f"the sender's key is not an RSA key of at least {_LEAST_BITS} bits")
        try:
            is_authority = issued.extensions.get_extension_for_class(crypto.x509.BasicConstraints).value.ca
        except crypto.x509.ExtensionNotFound:
            is_authority = False
        if is_authority or not _participant(issued).name:
            raise MessageError("the sender's certificate is not one of a participant")
        return issued


def sign_settings(root_key: bytes, federation: str, settings: SecureSum) -> dict[str, Any]:
    """Return a federation's settings of secure sums as kits have them, with the signature of the root's key (PEM)."""
    crypto, values = _crypto(), asdict(settings)
    key = crypto.serialization.load_pem_private_key(root_key, password=None)
    signature: bytes = key.sign(_settings_message(federation, values), *crypto.root_scheme)
    return values | {"signature": signature.hex()}


def _settings_message(federation: str, values: Mapping[str, Any]) -> bytes:
    return b"fedspan secure sums\0" + json.dumps([federation, values], sort_keys=True).encode()


class Delegate:
    """Signs in the name of the user that made the `delegation`, with the key of its own `identity`."""

    def __init__(self, identity: Identity, delegation: bytes, authority: Authority) -> None:
        self._identity = identity
        self.delegation = delegation
        self.certificate = identity.certificate
        self.participant = check_delegation(delegation, authority, identity.participant)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, made with the delegate's own key."""
        return self._identity.sign(message)


#: Signs messages: a participant, or a delegate of a user.
Signer = Identity | Delegate


def make_delegation(user: Identity, to: str, federation: str, seconds: float) -> bytes:
    """Authorise the participant `to` to act in the name of `user` from now on for this number of seconds."""
    if not user.role:
        raise InputError(f"{user.name!r} is no user, and has nothing to delegate")
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


def _read(certificate: bytes) -> Any:
    try:
        return _crypto().x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise InputError("a certificate cannot be read: it must be PEM") from None


def _pem(certificate: Any) -> bytes:
    written: bytes = certificate.public_bytes(_crypto().serialization.Encoding.PEM)
    return written


def _participant(certificate: Any) -> Participant:
    oid = _crypto().x509.NameOID

    def value(of: Any) -> str:
        found = certificate.subject.get_attributes_for_oid(of)
        return str(found[0].value) if len(found) == 1 else ""

    return Participant(value(oid.COMMON_NAME), value(oid.UNSTRUCTURED_NAME))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
