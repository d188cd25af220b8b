"""What a site's ledger charges for: the same query gets the same noise, charged once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from fedspan.wire import Message, encode


@dataclass(frozen=True)
class NoiseQuery:
    """A query and the digest of all that its answer depends on; `run` and `step` are for the ledger's lines."""

    run: str
    step: str
    digest: bytes


class SiteLedger(Protocol):
    """The privacy account that a site keeps (`fedspan.privacy.Ledger`).

    `simulated` ones belong to embedded runs: their noise can be computed again. A `strict` one lets no reply leave
    that reveals something and carries no noise.
    """

    @property
    def simulated(self) -> bool:
        """Whether the secret can be computed by others."""

    @property
    def strict(self) -> bool:
        """Whether replies without noise are refused."""

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Return whether the budget covers one more charge of this size."""

    def fingerprint_key(self) -> bytes:
        """Return the secret (32 bytes) that keys digests of the site's data in journals."""

    def noise_key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a query's noise, or refuse where the budget would not cover it; nothing is charged."""

    def key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Charge a query unless it was charged before; return the key of its noise, or refuse."""


def query_digest(
    step: str, payload: Mapping[str, Any], transforms: tuple[bytes, ...], data: bytes, more: tuple[object, ...] = ()
) -> bytes:
    """Return the digest (32 bytes) of a step or transform, its payload, the transforms before it, and the data."""
    digest = blake2b(digest_size=32)
    for part in (step.encode(), *transforms, data, repr(more).encode(), message_digest(payload)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def request_digest(
    step: str, payload: Mapping[str, Any], transforms: tuple[bytes, ...], run: str, number: int, seed: int
) -> bytes:
    """Return the digest (32 bytes) of what a call requests of a site."""
    return query_digest(step, payload, transforms, b"", (run, number, seed))


def message_digest(message: Message | Mapping[str, Any]) -> bytes:
    """Return the digest (32 bytes) of a message, the same for any order of its keys."""
    return blake2b(encode({key: message[key] for key in sorted(message)}), digest_size=32).digest()
