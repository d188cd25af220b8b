"""How bytes travel: packed by NVIDIA FLARE between server and site, and over a socket within a site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

#: A message of more bytes travels as an array, which NVIDIA FLARE's receiver downloads in pieces.
INLINE_LIMIT = 4_000_000

#: Bytes of the longest message between a site's own processes.
LONGEST = 2**33


def pack(message: bytes) -> Any:
    """Return what NVIDIA FLARE carries for `message`."""
    return message if len(message) <= INLINE_LIMIT else np.frombuffer(message, dtype=np.uint8)


def unpack(packed: Any) -> bytes:
    """Return the message that NVIDIA FLARE has carried."""
    if isinstance(packed, bytes):
        return packed
    if isinstance(packed, np.ndarray) and packed.dtype == np.uint8 and packed.ndim == 1:
        return packed.tobytes()
    raise TypeError(f"a message must be bytes, not {type(packed).__name__}")


def socket_path(kit: Path) -> str:
    """Return where the site's worker listens: beside the kit's keys, in a folder that only its owner enters.

    The path is relative to the working directory if the full one is too long for a socket.
    """
    path = str(kit / "worker.sock")
    return path if len(path.encode()) < 100 else os.path.relpath(path)
