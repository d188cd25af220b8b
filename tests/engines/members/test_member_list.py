"""The signed list: what it holds, who is refused by it, and that older ones are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedspan.engines.members.member_list import Member, read_list
from fedspan.engines.remote.messages import identity as identities
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError, MessageError
from tests.engines.remote.people import (
    certificate,
    identity,
    key_of,
    member_list,
    pem,
    root_certificate,
    signed,
    user,
    write_kit,
)


def test_a_list_comes_back_as_it_was_signed():
    made = member_list(3, ["a", "b"], schema={"z": "number", "a": "integer"})
    read = read_list(signed(made), root_certificate())
    assert read == made
    assert list(read.schema) == ["z", "a"]
    assert (read.names("site"), read.names("user")) == (("a", "b"), ("alice",))


@pytest.mark.parametrize("where", ["list", "signature", "root"])
def test_a_changed_list_is_refused(where):
    outer = json.loads(signed(member_list(3, ["a", "b"])))
    outer[where] = outer[where].replace("a", "b", 1) if where != "signature" else "00" * 256
    data = json.dumps(outer).encode()
    if where == "root":  # what travels with it is for newcomers alone
        assert read_list(data, root_certificate()).version == 3
    else:
        with pytest.raises(InputError, match=r"not one that this federation's root has signed|cannot be read"):
            read_list(data, root_certificate())


def test_an_authority_follows_its_file_and_refuses_older_lists(tmp_path):
    write_kit(tmp_path, "site", "a", members=member_list(5, ["a", "b"]))
    authority, b = Authority.from_kit(tmp_path), identity("b")
    assert authority.verify(b.certificate, b.sign(b"x"), b"x").name == "b"
    without = member_list(5, ["a", "b"]).without("b", "removed on a Monday")
    (tmp_path / "members.json").write_bytes(signed(without))
    with pytest.raises(MessageError, match="the certificate of 'b' was revoked: removed on a Monday"):
        authority.verify(b.certificate, b.sign(b"x"), b"x")
    assert (authority.version, authority.sites) == (6, {"a"})
    (tmp_path / "members.json").write_bytes(signed(member_list(5, ["a", "b"])))  # an older one, put back
    assert (authority.version, authority.sites) == (6, {"a"})
    with pytest.raises(InputError, match="has the version 4, and version 6 is known already"):
        authority.take(member_list(4, ["a", "b"]))
    with pytest.raises(InputError, match="that of the federation 'other'"):
        authority.take(member_list(9, ["a", "b"], federation="other"))
    (tmp_path / "members.json").write_bytes(b"half a li")
    assert authority.sites == {"a"}
    (tmp_path / "members.json").write_bytes(signed(member_list(7, ["a", "b"])))
    assert authority.version == 7
    assert Authority.from_kit(tmp_path).sites == {"a", "b"}


def test_a_certificate_of_the_root_that_is_not_listed_is_refused():
    listed = member_list(1, ["a"])
    authority = Authority(root_certificate(), listed.federation, members=listed)
    for stranger in (identity("b"), user("alice", "operator"), user("carol")):
        with pytest.raises(MessageError, match="is not on the federation's list of participants"):
            authority.verify(stranger.certificate, stranger.sign(b"x"), b"x")
    other = Identity(certificate("a", "", key_of("a").public_key()), pem(key_of("a")))  # a second one of the same key
    with pytest.raises(MessageError, match="is not on the federation's list"):
        authority.verify(other.certificate, other.sign(b"x"), b"x")


def test_a_renewed_certificate_is_taken_up_by_its_holder_alone(monkeypatch):
    old = Identity(certificate("a", "", key_of("a").public_key()), pem(key_of("a")))
    new = certificate("a", "", key_of("a").public_key())
    foreign = certificate("a", "", key_of("b").public_key())
    texts = tuple(one.decode() for one in (foreign, new, old.certificate))
    listed = replace(member_list(1, []), members={"a": Member("site", "", texts)})
    before = old.certificate
    old.follow(listed)
    assert old.certificate == before  # until all others have the list
    monkeypatch.setattr(identities, "_KNOWN_TO_ALL", 0.0)
    old.follow(listed)
    assert old.certificate == new
    old.follow(None)
    assert old.certificate == new
