"""How bytes travel between processes: by NVIDIA FLARE between server and site, and over a socket within a site."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np

#: A message of more bytes travels as an array, which NVIDIA FLARE's receiver downloads in pieces.
INLINE_LIMIT = 4_000_000

#: The longest message between a site's own processes.
LONGEST_FRAME = 2**33
_LENGTH = struct.Struct(">Q")


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


def write_frame(link: socket.socket, message: bytes) -> None:
    """Send one message over a socket: its length, then its bytes."""
    link.sendall(_LENGTH.pack(len(message)))
    link.sendall(message)


def read_frame(link: socket.socket) -> bytes | None:
    """Return the next message, or ``None`` if the other side has closed the socket."""
    head = _read(link, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > LONGEST_FRAME:
        raise ValueError(f"a message of {size} bytes is longer than {LONGEST_FRAME}")
    return _read(link, size)


def _read(link: socket.socket, size: int) -> bytes | None:
    whole = bytearray(size)
    view = memoryview(whole)
    while view:
        came = link.recv_into(view)
        if not came:
            return None
        view = view[came:]
    return bytes(whole)


def socket_path(kit: Path) -> str:
    """Return where the site's worker listens: beside the kit's keys, in a folder that only its owner enters.

    The path is relative to the working directory if the full one is too long for a socket.
    """
    path = str(kit / "worker.sock")
    return path if len(path.encode()) < 100 else os.path.relpath(path)
