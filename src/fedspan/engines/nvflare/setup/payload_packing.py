"""How bytes travel between server and site: small ones inline, large ones by NVIDIA FLARE's download path."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Above so many bytes a message travels as an array, which the receiver downloads in pieces.
INLINE_LIMIT = 4_000_000


def pack(message: bytes) -> Any:
    """Return what NVIDIA FLARE is to carry for `message`."""
    if len(message) <= INLINE_LIMIT:
        return message
    return np.frombuffer(message, dtype=np.uint8)


def unpack(parcel: Any) -> bytes:
    """Return the message that came."""
    if isinstance(parcel, bytes):
        return parcel
    if isinstance(parcel, np.ndarray) and parcel.dtype == np.uint8 and parcel.ndim == 1:
        return parcel.tobytes()
    raise TypeError(f"a message must be bytes, not {type(parcel).__name__}")
