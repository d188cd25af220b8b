"""What texts and bytes may stand for: numbers written out, hexadecimal, base64, compressed, or the bytes of floats."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from fedspan.arrays import Array

#: A sign counts only where no word ends before it: "age-63" is 63.
_NUMBER = re.compile(
    r"(?:(?<!\w)[-+])?(?:0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?[pP][-+]?\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){4,}")
_BITS = re.compile(r"[01]{64,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
#: Floating-point numbers that bytes are read as.
_FLOATS = ("<f8", ">f8", "<f4", ">f4", "<f2")
_MOST_BYTES = 1 << 22


def numbers_in(text: str) -> list[float]:
    """Return the numbers that a text spells.

    Examples
    --------
    >>> numbers_in("age-63, bmi=-2.5e1 0x1.8p+1")
    [63.0, -25.0, 3.0]
    """
    return [_number(one) for one in _NUMBER.findall(text)]


def _number(text: str) -> float:
    if "x" not in text.lower():
        return float(text)
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def decoded(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield the bytes that texts stand for if they are hexadecimal, base64, base85 or bits, together and unpacked."""
    found: dict[str, list[bytes]] = {"hex": [], "base64": [], "base85": []}
    for text in texts:
        for token in _BITS.findall(text):
            yield from of_bits(np.array(list(token), dtype=np.uint8))
        found["hex"] += [bytes.fromhex(token) for token in _HEX.findall(text)]
        for token in _BASE64.findall(text):
            letters = token.rstrip("=").replace("-", "+").replace("_", "/")
            if len(letters) % 4 != 1:
                found["base64"].append(base64.b64decode(letters + "=" * (-len(letters) % 4)))
        if len(text) >= 10 and " " not in text:
            try:
                found["base85"].append(base64.b85decode(text))
            except ValueError:
                continue
    for parts in found.values():
        if parts:
            yield from unpacked(b"".join(parts))


def of_bits(bits: Array) -> Iterator[bytes]:
    """Yield the bytes of which these may be the bits, the highest or the lowest first; none of few bits."""
    if bits.size >= 64 and np.isin(bits, (0, 1)).all():
        for order in ("big", "little"):
            yield np.packbits(bits.ravel().astype(np.uint8), bitorder=order).tobytes()


def unpacked(data: bytes) -> Iterator[bytes]:
    """Yield bytes, and what they are compressed from (zlib, gzip), up to a largest size."""
    yield data
    try:
        yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, _MOST_BYTES)
    except zlib.error:
        return


def floats_in(data: bytes) -> Iterator[Array]:
    """Yield the arrays of floating-point numbers of usual sizes that bytes may be."""
    for kind in _FLOATS:
        width = np.dtype(kind).itemsize
        if len(data) >= 2 * width and len(data) % width == 0:
            with np.errstate(invalid="ignore"):
                numbers = np.frombuffer(data, dtype=kind).astype(np.float64)
            size = np.abs(numbers)
            if ((size == 0) | ((size > 1e-30) & (size < 1e30))).all():
                yield numbers


def text_of(data: bytes) -> str:
    """Return bytes as text: UTF-8, or latin-1 where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def digests_of(data: bytes) -> Iterator[str]:
    """Yield the usual digests of a cell, hexadecimal: without a key, a digest of a guessable cell is the cell."""
    for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "sha3_256"):
        yield hashlib.new(name, data, usedforsecurity=False).hexdigest()
    for size in (8, 16, 32):
        yield hashlib.blake2b(data, digest_size=size).hexdigest()
    yield f"{binascii.crc32(data):08x}"
