"""Messages between two processes of one site, over a socket in the kit: the length, then the bytes."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_LENGTH = struct.Struct(">Q")

#: No message between a site's own processes is longer than this.
LONGEST = 2**33


def write_frame(link: socket.socket, message: bytes) -> None:
    """Send one message."""
    link.sendall(_LENGTH.pack(len(message)))
    link.sendall(message)


def read_frame(link: socket.socket) -> bytes | None:
    """Return the next message, or None if the other side is gone."""
    head = _read(link, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > LONGEST:
        raise ValueError(f"a message of {size} bytes is longer than {LONGEST}")
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
    """Return where the site's worker listens: beside the kit's keys, whose folder only its owner enters.

    The path is relative to the kit if the kit's own is too long for a socket.
    """
    path = str(kit / "worker.sock")
    return path if len(path.encode()) < 100 else os.path.relpath(path)
