"""A root, and certificates that look like those of provisioned kits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from fedspan.engines.members.member_list import Member, MemberList, sign_list
from fedspan.engines.remote.messages.identity import Authority, Identity

FEDERATION = "clinics"


@cache
def key(number):
    """Return one of a few keys: making them takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_of(name):
    return key(sum(name.encode()) % 5)


def pem(private):
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def certificate(name, role, public, *, root="root", root_key=None, ca=False, days=(0, 360)):
    """Return a certificate as NVFlare's provisioner writes it, PEM."""
    names = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    names += [x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role)] * bool(role)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, root)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(root_key or key(5), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@cache
def root_certificate(root_key=None):
    private = root_key or key(5)
    return certificate("root", "", private.public_key(), ca=True, root_key=private)


@cache
def identity(name, role=""):
    private = key_of(name)
    return Identity(certificate(name, role, private.public_key()), pem(private))


@cache
def user(name="alice", role="analyst"):
    return identity(name, role)


def authority(sites=(), federation=FEDERATION, secure_sum=None, members=None):
    return Authority(root_certificate(), federation, sites, secure_sum, members)


def member_list(version=1, sites=(), users=None, federation=FEDERATION, server="h:1", **settings):
    """Return a list with the certificates of `identity` and `user`."""
    members = {site: Member("site", "", (identity(site).certificate.decode(),)) for site in sites}
    for name, role in (users or {"alice": "analyst"}).items():
        members[name] = Member("user", role, (user(name, role).certificate.decode(),))
    return MemberList(federation, server, version, members, **settings)


def signed(members):
    """Return a list as it travels, signed by the root."""
    return sign_list(members, root_certificate(), pem(key(5)))


def write_kit(folder, kind, name, role="", members=None):
    """Write a kit as one that has joined has it."""
    (folder / "startup").mkdir(parents=True, exist_ok=True)
    own = identity(name, role)
    (folder / "startup" / "client.crt").write_bytes(own.certificate)
    (folder / "startup" / "client.key").write_bytes(pem(key_of(name)))
    (folder / "startup" / "rootCA.pem").write_bytes(root_certificate())
    (folder / "fedspan.json").write_text(json.dumps({"kind": kind, "name": name}))
    (folder / "members.json").write_bytes(signed(members or member_list(sites=[name] * (kind == "site"))))
    return folder
