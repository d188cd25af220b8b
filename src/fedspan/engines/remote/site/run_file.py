"""One run on a site's disk: an append-only file of frames, each a message with its length and checksum.

A frame is handed to the operating system before the reply that it holds leaves the site. So a process that is killed at
any moment loses nothing that it has said; a machine that loses power may lose the last frames. A frame that was cut
short is dropped when the file is read again. When the file has grown to several times what it says it is written anew,
beside the old one, and takes its place at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedspan.errors import FedspanError, MessageError
from fedspan.federation.calls.call import Delivery
from fedspan.federation.site.pending_call import Identified, Kept
from fedspan.federation.site.state import Changes
from fedspan.wire import Message, as_array, declared_size, decode, encode

#: A file is written anew when it is so many times as large as what it says, and no smaller than this.
_GROWTH, _LEAST_GROWN = 3, 2**26


@dataclass(frozen=True)
class Recorded:
    """A call of which a file holds the reply."""

    told: bytes
    session: str

    def question(self, site: str) -> bytes:
        """Return what identifies it."""
        return self.told


class RunFile:
    """What a site has on its disk of one run.

    Attributes
    ----------
    who : str
        The user whose run it is.
    data : str
        The fingerprint of the data that it began with.
    serial : int
        The highest request of the run that was seen.
    least : int
        The fewest sites of a secure sum, in a run that this site answers by such sums only; else 0.
    ended : bool
        The run is over, and nothing is kept but this.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.who = self.data = ""
        self.serial, self.least, self.ended = 0, 0, False
        self.kept = Kept()
        self._size = self._just = 0
        self._file: int | None = None
        self._said: tuple[Delivery | None, bytes] = (None, b"")
        if path.exists():
            self._read()

    @property
    def is_new(self) -> bool:
        """Whether nothing is written yet."""
        return self._size == 0

    def begin(self, who: str, data: str) -> None:
        """Write whose run it is, and on which data."""
        self.who, self.data = who, data
        self._append({"kind": "run", "who": who, "data": data})

    def see(self, serial: int) -> None:
        """Write that a request was seen: it is not looked at again."""
        self.serial = serial
        self._append({"kind": "seen", "serial": serial})

    def answered(self, after: int, call: Identified, delivery: Delivery) -> None:
        """Write a reply, which `kept` has already."""
        self._said = (delivery, encode(delivery.reply))
        goes_on = len(self.kept.pending) > 1  # another part of the same call
        self._append(_call_frame(after, call, goes_on, delivery, self._said[1]))
        if self._size > max(_LEAST_GROWN, _GROWTH * self._just):
            self._write_anew()

    def said(self, delivery: Delivery) -> bytes:
        """Return the bytes of a reply."""
        return self._said[1] if self._said[0] is delivery else encode(delivery.reply)

    def failed(self, after: int, number: int) -> None:
        """Write that a call has failed."""
        self._append({"kind": "failed", "after": after, "number": number})

    def secure(self, least: int) -> None:
        """Write that the run is one of secure sums only."""
        if least != self.least:
            self.least = least
            self._append({"kind": "secure", "least": least})

    def end(self) -> None:
        """Keep nothing of the run but that it is over, and whose it was."""
        self.ended, self.kept = True, Kept()
        self._write_anew()
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, frame: Message) -> None:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size += write(self._file, encode(frame))

    def _write_anew(self) -> None:
        kept = self.kept
        frames: list[Message] = [{"kind": "run", "who": self.who, "data": self.data}]
        frames.append({"kind": "seen", "serial": self.serial})
        if self.least:
            frames.append({"kind": "secure", "least": self.least})
        frames.append({"kind": "state", "number": kept.number, "state": as_array(encode(kept.state))})
        if kept.pending_number is not None:
            frames.append({"kind": "failed", "after": kept.number, "number": kept.pending_number})
        # After that frame these are further parts of the same call: they do not settle what was before them.
        frames += [
            _call_frame(kept.number, call, True, delivery, encode(delivery.reply)) for call, delivery in kept.pending
        ]
        if self.ended:
            frames.append({"kind": "end"})
        beside = self.path.with_suffix(".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            size = sum(write(file, encode(frame)) for frame in frames)
        finally:
            os.close(file)
        take_place(beside, self.path)
        self.close()
        self._size = self._just = size

    def _read(self) -> None:
        raw = self.path.read_bytes()
        for frame, end in _frames(raw, self.path):
            self._take(frame)
            self._size = end
        self._just = self._size
        if self._size < len(raw):
            os.truncate(self.path, self._size)  # a frame that was cut short

    def _take(self, frame: Message) -> None:
        kind, kept = frame["kind"], self.kept
        if kind == "seen":
            self.serial = frame["serial"]
        elif kind == "run":
            self.who, self.data = frame["who"], frame["data"]
        elif kind == "state":
            kept.number, kept.state = frame["number"], decode(memoryview(frame["state"]), frame["state"].nbytes)
        elif kind == "secure":
            self.least = frame["least"]
        elif kind == "end":
            self.ended = True
        elif kind in ("call", "failed"):
            if not frame.get("goes on"):
                kept.settle(frame["after"])
                kept.pending_number = frame["number"]
            if kind == "call":
                kept.pending.append((Recorded(frame["told"].tobytes(), frame["session"]), _delivery(frame)))


def write(file: int, data: bytes) -> int:
    """Write all of `data` and return its size."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(data)


def take_place(new: Path, old: Path) -> None:
    """Put one file in the place of another, at once."""
    os.replace(new, old)


def _frames(raw: bytes, path: Path) -> Iterator[tuple[Message, int]]:
    """Yield each frame and where it ends, up to one that was cut short."""
    at, view = 0, memoryview(raw)
    try:
        while (size := declared_size(view[at:])) is not None and at + size <= len(raw):
            yield decode(view[at : at + size], size), at + size
            at += size
    except MessageError:
        raise FedspanError(
            f"this site's record of the run, {path.name}, is damaged: it takes no part in this run"
        ) from None


def _call_frame(after: int, call: Identified, goes_on: bool, delivery: Delivery, reply: bytes) -> Message:
    return {
        "kind": "call",
        "after": after,
        "number": delivery.number,
        "goes on": goes_on,
        "told": as_array(call.question("")),
        "session": call.session,
        "rows": delivery.rows,
        "reply": as_array(reply),
        "put": as_array(encode(delivery.changes.put)),
        "deleted": json.dumps(delivery.changes.deleted),
    }


def _delivery(frame: Message) -> Delivery:
    reply, put = (decode(memoryview(frame[name]), frame[name].nbytes) for name in ("reply", "put"))
    return Delivery(frame["number"], reply, frame["rows"], Changes(put, tuple(json.loads(frame["deleted"]))))
