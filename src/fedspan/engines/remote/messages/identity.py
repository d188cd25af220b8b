"""Who speaks: certificates that the federation's root has issued, and signatures made with their keys.

A kit's certificate has the participant's name in its common name and, for users, the role in its unstructured name;
that of a site has no role. Keys are RSA. `cryptography` is imported when a certificate or key is first read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from fedspan.errors import InputError, MessageError, MissingPackageError

#: Clocks may differ by so much when a certificate has just been issued.
_CLOCKS_DIFFER = timedelta(minutes=5)
_LEAST_BITS = 2048
_MOST_CHECKED = 256


@cache
def _cryptography() -> Any:
    try:
        from cryptography import exceptions, x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        raise MissingPackageError(
            'a real federation needs cryptography, which is not installed: pip install "fedspan[secure]"'
        ) from None

    class Found:
        x509_ = x509
        rsa_ = rsa
        serialization_ = serialization
        refused = exceptions.InvalidSignature
        hashing = hashes.SHA256()
        filling = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)

    return Found


@dataclass(frozen=True)
class Who:
    """A name and a role, as a certificate has them. Sites have no role."""

    name: str
    role: str = ""


class Identity:
    """A certificate and its private key, which stays here.

    Parameters
    ----------
    certificate, key : bytes
        Both PEM; the key without a password.
    """

    #: It speaks for itself.
    delegation = b""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        found = _cryptography()
        try:
            self._key = found.serialization_.load_pem_private_key(key, password=None)
        except (ValueError, TypeError):
            raise InputError("the private key cannot be read: it must be PEM, without a password") from None
        issued = _read(certificate)
        if not isinstance(self._key, found.rsa_.RSAPrivateKey) or self._key.public_key() != issued.public_key():
            raise InputError("the private key is not the one of the certificate")
        self.certificate = _written(issued)
        self.who = _who(issued)

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.role!r})"

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return self.who.name

    @property
    def role(self) -> str:
        """The role in the certificate; empty for a site."""
        return self.who.role

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        found = _cryptography()
        signature: bytes = self._key.sign(message, found.filling, found.hashing)
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
    """The root of a federation: says whose certificates count.

    Parameters
    ----------
    root : bytes
        The root's certificate, PEM.
    federation : str
        The federation's name. Messages of another one are refused.
    sites : names, optional
        All sites of the federation, where they are known.
    """

    def __init__(self, root: bytes, federation: str, sites: Iterable[str] = ()) -> None:
        self._root = _read(root)
        self.federation = federation
        self.sites = frozenset(sites)
        self._checked: dict[bytes, Any] = {}

    @classmethod
    def from_kit(cls, folder: Path | str) -> Authority:
        """Read the root's certificate and the federation's name and sites from a participant's kit."""
        about = json.loads(_bytes_of(Path(folder) / "fedspan.json"))
        return cls(_bytes_of(Path(folder) / "startup" / "rootCA.pem"), about["federation"], about["sites"])

    def verify(self, certificate: bytes, signature: bytes, message: bytes) -> Who:
        """Return who has signed `message`, or refuse with a sentence."""
        found = _cryptography()
        issued = self._checked.get(certificate)
        if issued is None:
            issued = self._check(certificate)
            if len(self._checked) < _MOST_CHECKED:
                self._checked[certificate] = issued
        now = datetime.now(UTC)
        for one, whose in ((issued, f"the certificate of {_who(issued).name!r}"), (self._root, "the root certificate")):
            if now > one.not_valid_after_utc or now + _CLOCKS_DIFFER < one.not_valid_before_utc:
                raise MessageError(f"{whose} is not valid today: renew the kits, or set this machine's clock")
        try:
            issued.public_key().verify(signature, message, found.filling, found.hashing)
        except found.refused:
            raise MessageError(f"the signature is not one of {_who(issued).name!r} on this message") from None
        return _who(issued)

    def _check(self, certificate: bytes) -> Any:
        """Return a certificate that this root has issued to a participant."""
        found = _cryptography()
        try:
            issued = _read(certificate)
            if _written(issued) != certificate:  # there is one way to write it
                raise InputError("a certificate is not written as it should be")
        except InputError:
            raise MessageError("the sender's certificate cannot be read") from None
        try:
            issued.verify_directly_issued_by(self._root)
        except (ValueError, TypeError, found.refused):
            raise MessageError("the sender's certificate was not issued by the root of this federation") from None
        key = issued.public_key()
        if not isinstance(key, found.rsa_.RSAPublicKey) or key.key_size < _LEAST_BITS:
            raise MessageError(f"the sender's key is not an RSA key of at least {_LEAST_BITS} bits")
        try:
            is_authority = issued.extensions.get_extension_for_class(found.x509_.BasicConstraints).value.ca
        except found.x509_.ExtensionNotFound:
            is_authority = False
        if is_authority or not _who(issued).name:
            raise MessageError("the sender's certificate is not one of a participant")
        return issued


def _read(certificate: bytes) -> Any:
    try:
        return _cryptography().x509_.load_pem_x509_certificate(certificate)
    except ValueError:
        raise InputError("a certificate cannot be read: it must be PEM") from None


def _written(certificate: Any) -> bytes:
    written: bytes = certificate.public_bytes(_cryptography().serialization_.Encoding.PEM)
    return written


def _who(certificate: Any) -> Who:
    oid = _cryptography().x509_.NameOID

    def value(of: Any) -> str:
        found = certificate.subject.get_attributes_for_oid(of)
        return str(found[0].value) if len(found) == 1 else ""

    return Who(value(oid.COMMON_NAME), value(oid.UNSTRUCTURED_NAME))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
