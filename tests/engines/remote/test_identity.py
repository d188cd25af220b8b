"""Whose signatures count: certificates, roots, roles and kits."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fedspan.engines.remote.messages.identity import Authority, Identity, Participant
from fedspan.errors import InputError, MessageError

from .people import (
    FEDERATION,
    authority,
    certificate,
    identity,
    key,
    member_list,
    pem,
    root_certificate,
    signed,
    user,
    write_kit,
)


def test_name_and_role_come_from_the_certificate():
    message = b"who speaks"
    for someone, who in ((user(), Participant("alice", "analyst")), (identity("north"), Participant("north", ""))):
        assert someone.participant == who
        assert authority().verify(someone.certificate, someone.sign(message), message) == who


def test_a_signature_counts_for_its_message_and_signer_only():
    alice, bob = user("alice"), user("bob")
    with pytest.raises(MessageError, match="not one of 'alice' on this message"):
        authority().verify(alice.certificate, alice.sign(b"yes"), b"no")
    with pytest.raises(MessageError, match="not one of 'bob' on this message"):
        authority().verify(bob.certificate, alice.sign(b"yes"), b"yes")


def test_certificates_of_another_root_are_refused():
    other = key(6)
    foreign = certificate("alice", "analyst", key(0).public_key(), root_key=other)
    alice = Identity(foreign, pem(key(0)))
    for root in (authority(), Authority(root_certificate(key(5)), FEDERATION)):
        with pytest.raises(MessageError, match="not issued by the root"):
            root.verify(foreign, alice.sign(b"x"), b"x")
    with pytest.raises(MessageError, match="cannot be read"):
        authority().verify(b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"", b"x")


@pytest.mark.parametrize("days", [(-400, -40), (1, 300)], ids=["expired", "not yet"])
def test_certificates_count_while_they_are_valid(days):
    old = Identity(certificate("alice", "analyst", key(0).public_key(), days=days), pem(key(0)))
    with pytest.raises(MessageError, match="'alice' is not valid today"):
        authority().verify(old.certificate, old.sign(b"x"), b"x")


def test_a_root_counts_while_it_is_valid():
    root = certificate("root", "", key(5).public_key(), ca=True, days=(-400, -1))
    alice = user()
    with pytest.raises(MessageError, match="the root certificate is not valid today"):
        Authority(root, FEDERATION).verify(alice.certificate, alice.sign(b"x"), b"x")


def test_weak_keys_and_roots_do_not_speak_for_participants():
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for public in (weak.public_key(), ec.generate_private_key(ec.SECP256R1()).public_key()):
        with pytest.raises(MessageError, match="not an RSA key of at least 2048 bits"):
            authority().verify(certificate("alice", "analyst", public), b"", b"x")
    root = Identity(root_certificate(), pem(key(5)))
    with pytest.raises(MessageError, match="not one of a participant"):
        authority().verify(root.certificate, root.sign(b"x"), b"x")


def test_an_identity_is_read_from_a_kit(tmp_path):
    startup = tmp_path / "startup"
    startup.mkdir()
    with pytest.raises(InputError, match="is not a kit"):
        Identity.from_kit(tmp_path)
    write_kit(tmp_path, "user", "alice", "analyst", member_list(sites=["a", "b"]))
    alice, root = Identity.from_kit(tmp_path), Authority.from_kit(str(tmp_path))
    assert root.verify(alice.certificate, alice.sign(b"x"), b"x") == Participant("alice", "analyst")
    assert (root.federation, root.sites) == ("clinics", {"a", "b"})
    for damaged in ("", "[]", '{"list": "{}"}', '{"list": ' + "[" * 100_000):
        (tmp_path / "members.json").write_text(damaged)
        with pytest.raises(InputError, match=r"members\.json: the list of participants cannot be read"):
            Authority.from_kit(tmp_path)
    (startup / "client.key").write_bytes(pem(key(6)))
    with pytest.raises(InputError, match="does not belong to the certificate"):
        Identity.from_kit(tmp_path)
    (startup / "client.key").write_bytes(b"no key")
    with pytest.raises(InputError, match="cannot be read"):
        Identity.from_kit(tmp_path)
    (startup / "client.key").unlink()
    with pytest.raises(InputError, match=r"client\.key' cannot be read"):
        Identity.from_kit(tmp_path)


def test_no_key_in_a_repr():
    assert repr(user()) == "Identity('alice', 'analyst')"


def test_the_bytes_of_a_new_list_are_known_with_its_version(tmp_path):
    """Another thread would hand out the old list as the new one, and its receiver would never get that."""

    class Watched(Authority):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_members":
                seen.append(getattr(self, "data", b""))

    seen = []
    write_kit(tmp_path, "site", "a", members=member_list(3, ["a"]))
    known, newer = Watched.from_kit(tmp_path), signed(member_list(4, ["a"]))
    (tmp_path / "members.json").write_bytes(newer)
    assert known.version == 4
    assert seen[-1] == known.data == newer
