"""Keys and masks: X25519 agreements, HKDF, ChaCha20 as a generator of masks, and sealed messages between sites.

All randomness is the operating system's. `cryptography` (the extra ``secure``) is imported when a key is first made.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from fedspan.errors import FedspanError, MissingPackageError
from fedspan.secure_sum.sum_fixed_point import Accumulator, Words, add, subtract

KEY_BYTES = 32
SEAL_BYTES = 16  # what sealing adds to a message
_BLOCK = 2**13  # numbers masked at a time: the block and its masks stay in a processor's cache


@cache
def primitives() -> Any:
    """Return the primitives of `cryptography`, or refuse with a sentence where that package is missing."""
    try:
        from cryptography.hazmat import primitives as found
        from cryptography.hazmat.primitives import ciphers, hashes  # noqa: F401
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: F401
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401
        from cryptography.hazmat.primitives.kdf import hkdf  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            'a secure sum needs cryptography, which is not installed: pip install ".[secure]" in a checkout'
        ) from None
    return found


class KeyPair:
    """An X25519 key pair; `secret` (32 bytes) is all of it."""

    def __init__(self, secret: bytes | None = None) -> None:
        x25519 = primitives().asymmetric.x25519
        self.secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
        self._key = x25519.X25519PrivateKey.from_private_bytes(self.secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def agreed(self, public: bytes) -> bytes:
        """Return what only the owners of this pair and of `public` can compute."""
        x25519 = primitives().asymmetric.x25519
        try:
            agreed: bytes = self._key.exchange(x25519.X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point with which all agree on the same secret
            raise FedspanError("a public key is not one to agree with on a secret") from None
        return agreed


def derived(secret: bytes, salt: bytes, purpose: str) -> bytes:
    """Return the 32 bytes that HKDF (SHA-256) makes of a secret for one purpose."""
    algorithm, info = primitives().hashes.SHA256(), b"fedspan secure sum: " + purpose.encode()
    key: bytes = primitives().kdf.hkdf.HKDF(algorithm, KEY_BYTES, salt, info).derive(secret)
    return key


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return `message` encrypted and bound to `context`. A key seals one message only."""
    sealed: bytes = primitives().ciphers.aead.ChaCha20Poly1305(key).encrypt(bytes(12), message, context)
    return sealed


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the message that `seal` encrypted with this key for this `context`, or refuse."""
    from cryptography.exceptions import InvalidTag

    try:
        message: bytes = primitives().ciphers.aead.ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except InvalidTag:
        raise FedspanError("a sealed message is not what its sender sealed for this set of sites") from None
    return message


def mask(parts: Sequence[Words], plus: Sequence[bytes], minus: Sequence[bytes] = ()) -> None:
    """Add to `parts`, arrays (w, m) of words, the masks of the seeds `plus`, and subtract those of `minus`; in place.

    Without the seed, its mask is uniform over all words.
    """
    block = 8 * _BLOCK * max((len(part) for part in parts), default=0)
    zeros, noise = bytes(block), bytearray(block + 63)  # the cipher needs room for one more block of its own
    streams = [[_stream(seed) for seed in seeds] for seeds in (plus, minus)]
    for part in parts:
        for start in range(0, part.shape[1], _BLOCK):
            some = part[:, start : start + _BLOCK]
            nothing = memoryview(zeros)[: 8 * some.size]
            words = np.frombuffer(noise, dtype="<u8", count=some.size).reshape(some.shape)
            for sources, change in zip(streams, (add, subtract), strict=True):
                total = Accumulator(some.shape)
                for stream in sources:
                    stream.update_into(nothing, noise)
                    total.add(words)
                change(some, total.value())


def random_words(seed: bytes, shape: tuple[int, int]) -> Words:
    """Return words that are the same for the same seed, and uniform without it."""
    stream: bytes = _stream(seed).update(bytes(8 * shape[0] * shape[1]))
    return np.frombuffer(stream, dtype="<u8").reshape(shape)


def _stream(seed: bytes) -> Any:
    ciphers = primitives().ciphers
    return ciphers.Cipher(ciphers.algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
