"""A user's word that somebody else may ask sites in the user's name for a while: for runs that go on without the user.

The user's key stays with the user. Whoever holds the delegation signs with a key of his own; sites see the user's name
and role, and check both signatures. It is a power of attorney: within its time the delegate can ask whatever the user
could, so that it is made for a short time, and for the coordinator alone.
"""

from __future__ import annotations

import time
from typing import Protocol

from fedspan.engines.remote.messages.identity import Authority, Identity, Who
from fedspan.errors import InputError, MessageError
from fedspan.wire import as_array, decode, encode

_PURPOSE = b"fedspan delegation\0"
_LARGEST = 2**14
_LONGEST = 30 * 86400.0


class Sender(Protocol):
    """Whoever signs messages: a participant, or one who speaks for a user."""

    @property
    def who(self) -> Who:
        """In whose name."""

    @property
    def certificate(self) -> bytes:
        """Whose key signs, PEM."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""

    @property
    def delegation(self) -> bytes:
        """The user's word that this sender may speak for the user; empty where it speaks for itself."""


class Delegate:
    """Speaks for a user, with a key of its own.

    Parameters
    ----------
    identity : Identity
        Its own.
    delegation : bytes
        The user's word (see `delegated`).
    authority : Authority
        The federation's root.
    """

    def __init__(self, identity: Identity, delegation: bytes, authority: Authority) -> None:
        self._identity = identity
        self.delegation = delegation
        self.certificate = identity.certificate
        self.who = check_delegation(delegation, authority, identity.who)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, made with the delegate's own key."""
        return self._identity.sign(message)


def delegated(user: Identity, to: str, federation: str, seconds: float) -> bytes:
    """Return the word of `user` that the participant `to` may speak for the user, from now on for so many seconds."""
    if not user.role:
        raise InputError(f"{user.name!r} is no user, and has nothing to delegate")
    if not 0 < seconds <= _LONGEST:
        raise InputError(f"seconds={seconds!r} of a delegation must be above 0 and at most 30 days")
    head = encode({"federation": federation, "to": to, "until": time.time() + seconds})
    signature = user.sign(_PURPOSE + head)
    return encode({"head": as_array(head), "signature": as_array(signature), "certificate": as_array(user.certificate)})


def check_delegation(delegation: bytes, authority: Authority, delegate: Who) -> Who:
    """Return for whom `delegate` may speak, or refuse with a sentence."""
    try:
        outer = decode(delegation, _LARGEST)
        head, signature, certificate = (outer[name].tobytes() for name in ("head", "signature", "certificate"))
        user = authority.verify(certificate, signature, _PURPOSE + head)
        told = decode(head, _LARGEST)
        to, federation, until = str(told["to"]), str(told["federation"]), float(told["until"])
    except (AttributeError, KeyError, TypeError) as error:
        raise MessageError("the delegation cannot be read") from error
    if federation != authority.federation:
        raise MessageError("the delegation is of another federation")
    if not user.role or delegate != Who(to):
        raise MessageError(f"{user.name!r} has not delegated anything to {delegate.name!r}")
    if time.time() > until:
        raise MessageError(f"the time is over for which {user.name!r} has let {to!r} speak in that name")
    return user
