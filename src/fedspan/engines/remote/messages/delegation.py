"""Delegation: a user authorises the coordinator to send requests in the user's name, for runs that outlast the user.

The user's key stays with the user. The delegate signs with its own key; sites see the user's name and role, and check
both signatures. While it is valid, a delegate can request whatever the user could. So it is valid for a short time, and
for the coordinator alone.
"""

from __future__ import annotations

import time
from typing import Protocol

from fedspan.engines.remote.messages.identity import Authority, Identity, Participant
from fedspan.errors import InputError, MessageError
from fedspan.wire import as_array, decode, encode

_PURPOSE = b"fedspan delegation\0"
_LARGEST = 2**14
_LONGEST = 30 * 86400.0


class Signer(Protocol):
    """Signs messages: a participant, or a delegate of a user."""

    @property
    def participant(self) -> Participant:
        """In whose name."""

    @property
    def certificate(self) -> bytes:
        """The certificate of the key that signs, PEM."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""

    @property
    def delegation(self) -> bytes:
        """The user's delegation; empty where the signer acts in its own name."""


class Delegate:
    """Signs in a user's name, with a key of its own.

    Parameters
    ----------
    identity : Identity
        The delegate's own.
    delegation : bytes
        What `make_delegation` returned to the user.
    authority : Authority
        The federation's root.
    """

    def __init__(self, identity: Identity, delegation: bytes, authority: Authority) -> None:
        self._identity = identity
        self.delegation = delegation
        self.certificate = identity.certificate
        self.participant = check_delegation(delegation, authority, identity.participant)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, made with the delegate's own key."""
        return self._identity.sign(message)


def make_delegation(user: Identity, to: str, federation: str, seconds: float) -> bytes:
    """Authorise the participant `to` to act in the name of `user` from now on for this number of seconds."""
    if not user.role:
        raise InputError(f"{user.name!r} is no user, and has nothing to delegate")
    if not 0 < seconds <= _LONGEST:
        raise InputError(f"seconds={seconds!r} of a delegation must be above 0 and at most 30 days")
    head = encode({"federation": federation, "to": to, "until": time.time() + seconds})
    signature = user.sign(_PURPOSE + head)
    return encode({"head": as_array(head), "signature": as_array(signature), "certificate": as_array(user.certificate)})


def check_delegation(delegation: bytes, authority: Authority, delegate: Participant) -> Participant:
    """Return the user in whose name `delegate` may act, or refuse with a `MessageError`."""
    try:
        outer = decode(delegation, _LARGEST)
        raw, signature, certificate = (outer[name].tobytes() for name in ("head", "signature", "certificate"))
        user = authority.verify(certificate, signature, _PURPOSE + raw)
        head = decode(raw, _LARGEST)
        to, federation, until = str(head["to"]), str(head["federation"]), float(head["until"])
    except (AttributeError, KeyError, TypeError) as error:
        raise MessageError("the delegation cannot be read") from error
    if federation != authority.federation:
        raise MessageError("the delegation is of another federation")
    if not user.role or delegate != Participant(to):
        raise MessageError(f"{user.name!r} has not delegated anything to {delegate.name!r}")
    if time.time() > until:
        raise MessageError(f"the delegation of {user.name!r} to {to!r} has expired")
    return user
