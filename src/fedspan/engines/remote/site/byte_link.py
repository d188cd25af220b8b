"""Connections between the processes of a site: bytes of any length, and messages."""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedspan.wire import Message, canonical, decode, pieces

#: Bytes of the longest piece; fewer than these are sent at once, so that the other side is woken once.
LONGEST, _FEW = 2**33, 2**16

#: Bytes that the path of a socket may have on every system.
_LONGEST_PATH = 100


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield the path of a socket, or if it is too long for one, a short one through an open folder (see unix(7))."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
    elif not Path("/proc/self/fd").is_dir():
        yield os.path.relpath(path)
    else:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)


class ByteLink:
    """One end of a connection. `EOFError` where the other end was closed."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.close = weakref.finalize(self, end.close)  # also of a link that is left behind

    @classmethod
    def to(cls, path: Path) -> ByteLink:
        """Connect to the socket of a path; `OSError` where no process listens."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(path) as address:
                end.connect(address)
        except OSError:
            end.close()
            raise
        return cls(end)

    def send(self, *several: bytes | memoryview | list[bytes | memoryview]) -> None:
        """Send bytes, each time as they are or in pieces, which are received as one."""
        whole: list[bytes | memoryview] = []
        for one in several:
            parts = one if isinstance(one, list) else [one]
            whole += [sum(map(len, parts)).to_bytes(8, "little"), *parts]
        if sum(map(len, whole)) <= _FEW:
            whole = [b"".join(whole)]
        for part in whole:
            self._socket.sendall(part)

    def receive(self) -> memoryview:
        """Wait for the next bytes."""
        size = int.from_bytes(self._read(8), "little")
        if size > LONGEST:
            raise EOFError
        return self._read(size)

    def send_messages(self, *messages: Message) -> None:
        """Send messages, one after the other."""
        self.send(*(pieces(canonical(message, copy=False), checksum=False) for message in messages))

    def message(self) -> Message:
        """Wait for the next message."""
        raw = self.receive()
        return decode(raw, len(raw))

    def wait(self, seconds: float) -> bool:
        """Wait for bytes, at most this long; return whether some have come, or the other end was closed."""
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        return bool(ready.poll(max(0.0, seconds) * 1000))

    def _read(self, size: int) -> memoryview:
        whole = np.empty(size, dtype=np.uint8).data
        rest = whole
        while rest:
            taken = self._socket.recv_into(rest, flags=socket.MSG_WAITALL)
            if not taken:
                raise EOFError
            rest = rest[taken:]
        return whole
