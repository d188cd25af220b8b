"""Keys of noise: what a secret makes of a question, the same for the same question and cost."""

from __future__ import annotations

from hashlib import blake2b

from fedspan.errors import InputError
from fedspan.federation.site.noise_query import NoiseQuery
from fedspan.privacy.accounting import Cost


def checked_cost(mu2: float, rho: float) -> Cost:
    """Return a cost, or refuse one that is nothing or less: noise always costs."""
    if not (mu2 >= 0 and rho >= 0 and mu2 + rho > 0):
        raise InputError(f"mu2={mu2!r} and rho={rho!r}: what noise costs must be above 0")
    return Cost(float(mu2), float(rho))


def noise_digest(query: NoiseQuery, cost: Cost) -> bytes:
    """Return the digest of a question and of how much noise it gets."""
    return blake2b(query.digest + repr((cost.mu2, cost.rho)).encode(), digest_size=32).digest()


def noise_key(secret: bytes, digest: bytes) -> bytes:
    """Return the key of the noise for one question."""
    return blake2b(b"fedspan noise key\0" + digest, key=secret, digest_size=32).digest()


def fingerprint_key(secret: bytes) -> bytes:
    """Return the key of the fingerprints of a site's data, which tells nothing of the keys of noise."""
    return blake2b(b"fedspan fingerprint key", key=secret, digest_size=32).digest()
