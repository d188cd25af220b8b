"""Signed messages: every byte counts, and nothing is read before it is believed."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.engines.remote.messages import envelope
from fedspan.engines.remote.messages.envelope import Sealed, head_digest, open_sealed
from fedspan.errors import MessageError
from fedspan.wire import as_array, decode, encode

from .people import authority, user

HEAD = {"federation": "clinics", "run": "r", "number": 3}


def sealed(parts=None, **head):
    return Sealed(user(), "request", {**HEAD, **head}, {"payload": b"much data"} if parts is None else parts)


def opened(data, purpose="request", site="a", max_bytes=2**20):
    return open_sealed(data, authority(), purpose, site, max_bytes)


def test_a_message_comes_out_as_it_went_in():
    message = sealed()
    found = opened(message.to("a"))
    assert (found.sender.name, found.head["number"], bytes(found.parts["payload"])) == ("alice", 3, b"much data")
    assert found.digest == message.digest == head_digest(message.to("a"))


def test_no_byte_can_be_changed():
    data = sealed().to("a")
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(MessageError):
            opened(bytes(changed))


@pytest.mark.parametrize("what", ["head", "signature", "certificate", "part payload"])
def test_no_byte_can_be_changed_by_one_who_mends_the_checksum(what):
    outer = decode(sealed().to("a"))
    for at in range(0, len(outer[what]), 11):
        changed = outer[what].copy()
        changed[at] ^= 1
        with pytest.raises(MessageError, match=r"sign|certificate|root"):
            opened(encode({**outer, what: changed}))


def test_a_message_is_for_one_purpose_and_federation():
    with pytest.raises(MessageError, match="signature is not one of"):
        opened(sealed().to("a"), purpose="response")
    with pytest.raises(MessageError, match="of another federation"):
        opened(sealed(federation="banks").to("a"))


def test_parts_can_neither_be_left_out_nor_added():
    outer = decode(sealed().to("a"))
    with pytest.raises(MessageError, match="'payload' is not the one that was signed"):
        opened(encode({name: value for name, value in outer.items() if name != "part payload"}))
    with pytest.raises(MessageError, match="'transform 0' is not the one that was signed"):
        opened(encode({**outer, "part transform 0": np.zeros(1, dtype=np.uint8)}))
    with pytest.raises(MessageError, match="has no place in it"):
        opened(encode({**outer, "more": 1}))
    with pytest.raises(MessageError, match="is not signed"):
        opened(encode({name: value for name, value in outer.items() if name != "signature"}))


def test_what_is_for_one_site_goes_to_that_site_only():
    message = sealed({"payload": b"all", "apart a": b"for a", "apart b": b"for b"})
    assert b"for b" not in message.to("a")
    assert bytes(opened(message.to("a")).parts["apart a"]) == b"for a"
    with pytest.raises(MessageError, match="'apart b' is not the one"):
        opened(message.to("a"), site="b")
    stolen = {**decode(message.to("a")), "part apart a": np.frombuffer(b"for b", dtype=np.uint8)}
    with pytest.raises(MessageError, match="'apart a' is not the one"):
        opened(encode(stolen))


def test_sizes_are_looked_at_first(monkeypatch):
    message = sealed({"payload": bytes(envelope.ALLOWANCE + 2000)})
    data = message.to("a")
    assert head_digest(data) == message.digest  # by which the refusal names the request
    monkeypatch.setattr(envelope, "decode", lambda *args: pytest.fail("it was read"))
    with pytest.raises(MessageError, match="more than the 1000 allowed"):
        opened(data, max_bytes=1000)


@pytest.mark.parametrize("data", [b"", b"nonsense", encode({}), encode({"head": 1})], ids=len)
def test_nonsense_is_refused(data):
    with pytest.raises(MessageError):
        opened(data)
    assert head_digest(data) == ""


@pytest.mark.parametrize("parts", ["[" * 100_000, "nonsense", "[]", '{"payload": 3}', 3, None])
def test_digests_of_another_form_are_refused(parts):
    raw = encode({"format": envelope.FORMAT, **HEAD, "parts": parts})
    outer = {"head": as_array(raw), "signature": as_array(user().sign(envelope._signed("request", raw)))}
    with pytest.raises(MessageError, match="does not state the digests of its parts"):
        opened(encode(outer | {"certificate": as_array(user().certificate)}))
