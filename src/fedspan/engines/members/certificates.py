"""Keys, certificate requests and certificates. `cryptography` is imported when one of them is first used."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from fedspan.errors import InputError, MissingPackageError

#: Days that a root's certificate is valid, and a participant's unless the authority chooses another number.
ROOT_DAYS, DAYS = 3650, 360
#: Clocks may differ by this much when a certificate has just been issued.
CLOCKS_DIFFER = timedelta(minutes=5)
#: How long before it is issued a certificate begins: a clock that is behind makes no one wait, or seem a stranger.
BACKDATED = timedelta(days=1)
LEAST_BITS = 2048
_ORGANISATION = "fedspan"


@cache
def crypto() -> SimpleNamespace:
    """Import `cryptography`, with the one way of padding and hashing that signatures use."""
    try:
        from cryptography import exceptions, x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        raise MissingPackageError(
            'a real federation needs cryptography, which is not installed: pip install ".[secure]" in a checkout'
        ) from None
    scheme = (padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32), hashes.SHA256())
    # The root signs lists by a scheme without randomness: the same list has the same bytes.
    root_scheme = (padding.PKCS1v15(), hashes.SHA256())
    return SimpleNamespace(
        x509=x509,
        rsa=rsa,
        serialization=serialization,
        hashes=hashes,
        invalid=exceptions.InvalidSignature,
        scheme=scheme,
        root_scheme=root_scheme,
    )


def new_key() -> bytes:
    """Return a new private key, PEM, without a password."""
    made = crypto().rsa.generate_private_key(public_exponent=65537, key_size=LEAST_BITS)
    kinds = crypto().serialization
    pem: bytes = made.private_bytes(kinds.Encoding.PEM, kinds.PrivateFormat.TraditionalOpenSSL, kinds.NoEncryption())
    return pem


@lru_cache(maxsize=8)  # a check of its primes takes 40 ms, and the authority's key is read for every signature
def read_key(key: bytes) -> Any:
    """Read an RSA private key."""
    try:
        read = crypto().serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        raise InputError("the private key cannot be read: it must be PEM, without a password") from None
    if not isinstance(read, crypto().rsa.RSAPrivateKey):
        raise InputError("the private key is not an RSA key")
    return read


def read_certificate(certificate: bytes) -> Any:
    """Read a certificate."""
    try:
        return crypto().x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise InputError("a certificate cannot be read: it must be PEM") from None


def pem(certificate: Any) -> bytes:
    """Return a certificate's one encoding."""
    written: bytes = certificate.public_bytes(crypto().serialization.Encoding.PEM)
    return written


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 digest of a certificate, which names it."""
    return sha256(certificate).hexdigest()


def key_digest(public: Any) -> str:
    """Return a digest of a public key that two people can compare: groups of four hexadecimal digits."""
    kinds = crypto().serialization
    raw = public.public_bytes(kinds.Encoding.DER, kinds.PublicFormat.SubjectPublicKeyInfo)
    digits = sha256(raw).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


def make_request(key: bytes, name: str, role: str = "") -> bytes:
    """Return a request (PKCS #10, PEM) for a certificate of the participant `name`, signed by its own key."""
    builder = crypto().x509.CertificateSigningRequestBuilder().subject_name(_subject(name, role))
    made = builder.sign(read_key(key), crypto().hashes.SHA256())
    written: bytes = made.public_bytes(crypto().serialization.Encoding.PEM)
    return written


def read_request(request: bytes) -> tuple[str, str, Any]:
    """Return the name, the role and the public key of a request whose signature is right."""
    try:
        read = crypto().x509.load_pem_x509_csr(request)
    except ValueError:
        raise InputError("the request for a certificate cannot be read") from None
    public = read.public_key()
    if not isinstance(public, crypto().rsa.RSAPublicKey) or public.key_size < LEAST_BITS:
        raise InputError(f"the request's key is not an RSA key of at least {LEAST_BITS} bits")
    if not read.is_signature_valid:
        raise InputError("the request is not signed by its own key")
    return (*subject_of(read), public)


def make_root(federation: str) -> tuple[bytes, bytes]:
    """Return certificate and key of a new federation's root."""
    x509, key = crypto().x509, new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, federation)])
    private = read_key(key)
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    may = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage)
    builder = _builder(name, name, private.public_key(), private.public_key(), ROOT_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return pem(builder.add_extension(may, critical=True).sign(private, crypto().hashes.SHA256())), key


def issue(
    root: bytes, root_key: bytes, public: Any, name: str, role: str = "", hosts: Iterable[str] = (), days: float = DAYS
) -> bytes:
    """Return a certificate of the participant `name`; `hosts` are the names and addresses of a server."""
    x509, issuer, private = crypto().x509, read_certificate(root), read_key(root_key)
    builder = _builder(_subject(name, role), issuer.subject, public, private.public_key(), days)
    ends = min(datetime.now(UTC) + timedelta(days=days), issuer.not_valid_after_utc)
    alternatives = [_host(host) for host in (*hosts, name)]
    builder = builder.not_valid_after(ends).add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return pem(builder.sign(private, crypto().hashes.SHA256()))


def subject_of(certificate: Any) -> tuple[str, str]:
    """Return the name and the role in a certificate or request; empty where there is not exactly one."""
    oid = crypto().x509.NameOID

    def value(of: Any) -> str:
        found = certificate.subject.get_attributes_for_oid(of)
        return str(found[0].value) if len(found) == 1 else ""

    return value(oid.COMMON_NAME), value(oid.UNSTRUCTURED_NAME)


def _subject(name: str, role: str) -> Any:
    x509, oid = crypto().x509, crypto().x509.NameOID
    parts = [(oid.COMMON_NAME, name), (oid.ORGANIZATION_NAME, _ORGANISATION)] + [(oid.UNSTRUCTURED_NAME, role)] * bool(
        role
    )
    return x509.Name([x509.NameAttribute(of, value) for of, value in parts])


def _host(host: str) -> Any:
    x509 = crypto().x509
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, public: Any, signer: Any, days: float) -> Any:
    x509, now = crypto().x509, datetime.now(UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - BACKDATED)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    builder = builder.add_extension(authority, critical=False)
    return builder.not_valid_after(now + timedelta(days=days)) if subject == issuer else builder
