"""Messages between coordinator and sites: named parts under one signed head.

The head holds the digest of every part, so that one signature covers all. It also holds what binds the message: the
federation, the run, the call, and the sites that receive it. A part whose name begins with ``"apart "`` goes to one
site alone; other sites receive only its digest. The reader checks the size first, then the signature, then reads head
and parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from fedspan.checks import json_value
from fedspan.engines.remote.messages.identity import Authority, Participant, Signer, check_delegation
from fedspan.errors import MessageError
from fedspan.wire import Message, as_array, decode, encode

FORMAT = 1
#: Bytes that head, signature and certificate may add to the parts of a message.
ALLOWANCE = 2**20
APART = "apart "
#: What reading a head from outside may raise.
MISREAD = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
_PART = "part "
_OUTER = {"head", "signature", "certificate"}


@dataclass(frozen=True)
class Opened:
    """A message with a valid signature: its sender, head and parts, and the digest that an answer must name.

    `digests` are those of the parts that are here.
    """

    sender: Participant
    head: Message
    parts: dict[str, memoryview]
    digests: dict[str, str]
    digest: str


class Sealed:
    """A head, signed once, and the parts that go with it to each site."""

    def __init__(self, signer: Signer, purpose: str, head: Message, parts: Mapping[str, bytes]) -> None:
        digests = {name: _digest(part) for name, part in parts.items()}
        raw = encode({"format": FORMAT, **head, "parts": json.dumps(digests)})
        self.digest = _digest(raw)
        self._parts = dict(parts)
        self._outer: Message = {
            "head": as_array(raw),
            "signature": as_array(signer.sign(_signed(purpose, raw))),
            "certificate": as_array(signer.certificate),
        }
        if signer.delegation:
            self._outer["delegation"] = as_array(signer.delegation)
        self._common: bytes | None = None if any(name.startswith(APART) for name in parts) else self._bytes("")

    def to(self, site: str) -> bytes:
        """Return the bytes for one site."""
        return self._bytes(site) if self._common is None else self._common

    def _bytes(self, site: str) -> bytes:
        mine = {n: part for n, part in self._parts.items() if not n.startswith(APART) or n == APART + site}
        return encode(self._outer | {_PART + name: as_array(part) for name, part in mine.items()}, checksum=False)


def open_sealed(data: bytes | memoryview, authority: Authority, purpose: str, site: str, max_bytes: int) -> Opened:
    """Read a message from outside, or refuse it with a `MessageError`; `site` is the reader, if it has a part apart."""
    if len(data) > max_bytes + ALLOWANCE:
        raise MessageError(f"the message has {len(data)} bytes, more than the {max_bytes} allowed")
    outer = decode(data, max_bytes + ALLOWANCE)
    for name, value in outer.items():
        known = name in _OUTER or name == "delegation" or name.startswith(_PART)
        if not known or not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
            raise MessageError(f"the message has a part {name[:40]!r} that has no place in it")
    if not outer.keys() >= _OUTER:
        raise MessageError("the message is not signed")
    raw, signature, certificate = (outer[name].tobytes() for name in ("head", "signature", "certificate"))
    sender = authority.verify(certificate, signature, _signed(purpose, raw))
    if "delegation" in outer:
        sender = check_delegation(outer.pop("delegation").tobytes(), authority, sender)
    head = decode(raw, ALLOWANCE)
    if head.get("format") != FORMAT:
        raise MessageError(f"the message has the format {head.get('format')!r}, and this fedspan reads {FORMAT}")
    if head.get("federation") != authority.federation:
        raise MessageError("the message is of another federation")
    digests = _digests(head.get("parts"))
    parts = {name.removeprefix(_PART): memoryview(outer[name]) for name in outer.keys() - _OUTER}
    for name in digests.keys() | parts.keys():
        if name in parts and _digest(parts[name]) == digests.get(name):
            continue
        if name in parts or not name.startswith(APART) or name == APART + site:
            raise MessageError(f"the message's {name!r} is not the one that was signed")
    return Opened(sender, head, parts, {name: digests[name] for name in parts}, _digest(raw))


def _digests(text: object) -> dict[str, str]:
    try:
        digests = json_value(text) if isinstance(text, str) else None
    except ValueError:
        digests = None
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise MessageError("the message does not state the digests of its parts")
    return digests


def head_digest(data: bytes | memoryview) -> str:
    """Return the digest of a message's head, signed or not, too large or not; empty where it has none."""
    try:
        return _digest(decode(data, len(data))["head"].tobytes())
    except (MessageError, KeyError, AttributeError):
        return ""


def _signed(purpose: str, raw: bytes) -> bytes:
    """Return what is signed: a signature for one purpose, or by other software, is not valid for another."""
    return f"fedspan {purpose}\0".encode() + raw


def _digest(data: bytes | memoryview) -> str:
    return sha256(data).hexdigest()
