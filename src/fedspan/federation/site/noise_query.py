"""What a site is asked, as far as noise for privacy is concerned: the same question gets the same noise, paid once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from fedspan.wire import Message, encode


@dataclass(frozen=True)
class Question:
    """A question with its digest, which is of all that the answer depends on; `run` and `what` are for the books."""

    run: str
    what: str
    digest: bytes


class SiteLedger(Protocol):
    """The account that a site keeps of its privacy (`fedspan.privacy.Ledger`).

    `simulated` ones belong to embedded runs, whose noise anybody can compute again; a `strict` one lets nothing leave
    that carries no noise and is not public.
    """

    @property
    def simulated(self) -> bool:
        """Whether the secret is none."""

    @property
    def strict(self) -> bool:
        """Whether replies without noise are refused."""

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Whether the budget lasts for a charge that was not made before."""

    def fingerprint_key(self) -> bytes:
        """Return the secret (32 bytes) by which the site's data are known again in a journal, and by nobody else."""

    def key(self, question: Question, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Charge a question that was not charged before; return the key of its noise, or refuse."""


def question_digest(
    what: str, payload: Mapping[str, Any], lenses: tuple[bytes, ...], data: bytes, more: tuple[object, ...] = ()
) -> bytes:
    """Return the digest (32 bytes) of a step or lens, what it was told, the lenses before it, and the site's data."""
    digest = blake2b(digest_size=32)
    for part in (what.encode(), *lenses, data, repr(more).encode(), message_digest(payload)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def asked_digest(
    what: str, payload: Mapping[str, Any], lenses: tuple[bytes, ...], run: str, number: int, seed: int
) -> bytes:
    """Return the digest (32 bytes) of what a site is asked in a call, whatever its data."""
    return question_digest(what, payload, lenses, b"", (run, number, seed))


def message_digest(message: Message | Mapping[str, Any]) -> bytes:
    """Return the digest (32 bytes) of a message, whatever the order of its keys."""
    return blake2b(encode({key: message[key] for key in sorted(message)}), digest_size=32).digest()
