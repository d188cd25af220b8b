"""Ledgers of embedded sites that have none of their own."""

from __future__ import annotations

from hashlib import blake2b

from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.privacy.noise_keys import checked_cost, fingerprint_key, noise_digest
from fedspan.privacy.noise_keys import noise_key as _noise_key


class SimulatedLedger:
    """The account of an embedded site that has none: its secret follows from the run's seed, and it has no end.

    Results can be computed again, and so can the noise: it protects nobody.
    """

    simulated = True
    strict = False

    def __init__(self, name: str, seed: int) -> None:
        self._secret = blake2b(f"fedspan simulated ledger\0{seed}\0{name}".encode(), digest_size=32).digest()

    def lasts(self, *, mu2: float = 0.0, rho: float = 0.0) -> bool:
        """Whether the budget lasts: there is none."""
        return True

    def key(self, query: NoiseQuery, *, mu2: float = 0.0, rho: float = 0.0) -> bytes:
        """Return the key of a question's noise."""
        return _noise_key(self._secret, noise_digest(query, checked_cost(mu2, rho)))

    noise_key = key

    def fingerprint_key(self) -> bytes:
        """Return the key of fingerprints, which is no secret either."""
        return fingerprint_key(self._secret)
