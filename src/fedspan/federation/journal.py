"""The journal: an append-only file of what the coordinator received, from which a killed run resumes.

A file is a sequence of frames::

    "FSJ1"  number u64  length u64  crc32 of these u32   |  body  |  digest of the frame before and this body (16 bytes)

Frame 0 is the head (what runs, on which data), then one frame per call, last a frame that says why the run
stopped. A frame is written before the protocol sees its replies. A frame cut short by a kill is dropped when the
file is opened again; any other damage is an error that names the frame. Mode 0600: replies can amount to data.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from fedspan.errors import JournalError, MessageError
from fedspan.federation.site.state import Changes
from fedspan.wire import Message, decode, encode

_MAGIC = b"FSJ1"
_FRAME = struct.Struct("<4sQQI")
_DIGEST = 16


@dataclass(frozen=True)
class Entry:
    """One call as the journal keeps it.

    For a sum `replies` holds the total alone, under the name ``""``; `error` says why there is none. Without a `quorum`
    nobody's reply was taken.
    """

    number: int
    digest: str
    answered: tuple[str, ...]
    failed: dict[str, str]
    replies: dict[str, Message]
    changes: dict[str, Changes]
    bytes_up: dict[str, int]
    seconds: float
    quorum: bool = True
    error: str | None = None
    bytes_down: dict[str, int] | None = None  # where the call alone does not tell them


class Journal:
    """The journal of one run, open for reading what was done and for appending what is new.

    Parameters
    ----------
    path : path
        Created with mode 0600 if missing.
    head : mapping
        What identifies the run: anything that JSON can hold. A file with another head is refused, but for the
        keys in `advice`, which the file decides.
    """

    def __init__(self, path: Path, head: Mapping[str, Any], advice: Sequence[str] = ()) -> None:
        self.path = path
        self._end = 0
        self._last_digest = b""
        _take_over(path.resolve(), self)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = os.fdopen(descriptor, "r+b")
        try:
            self._lock()
            self._offsets = self._scan()
            if not self._offsets:
                self._append([json.dumps(head).encode()])
            self.head: dict[str, Any] = json.loads(bytes(self._body(0)[0]))
            _compare_heads(self.head, head, advice, path)
        except BaseException:
            self._file.close()
            raise
        self._next = 1

    @property
    def resumed(self) -> bool:
        """Whether calls of an earlier process are still to be replayed."""
        return self._next < len(self._offsets)

    def replay(self, number: int, digest: str, step: str) -> Entry | None:
        """Return the recorded entry of the next call, or ``None`` where the record ends.

        The call must be the one that was recorded: anything else means that another protocol, or one with other
        parameters, is running on this file.
        """
        if not self.resumed:
            return None
        entry = _parse_call(self._body(self._next), self.path)
        if entry is None:
            raise JournalError(
                f"{self.path} is of a finished run that made {self._next - 1} calls, and this run makes more"
            )
        if (entry.number, entry.digest) != (number, digest):
            raise JournalError(
                f"{self.path} does not fit: its call {entry.number} went to another step or had other recipients or "
                f"another payload than this run's call {number} of {step!r}; give this run a folder of its own"
            )
        if not entry.quorum and self._next == len(self._offsets) - 1:
            self._drop_last()  # the run stopped here because too few answered: ask again
            return None
        self._next += 1
        return entry

    def append(self, entry: Entry) -> None:
        """Write one call and hand it to the operating system before returning."""
        head = {
            "number": entry.number,
            "digest": entry.digest,
            "answered": entry.answered,
            "failed": entry.failed,
            "replies": list(entry.replies),
            "changes": {site: list(changes.deleted) for site, changes in entry.changes.items()},
            "bytes_up": entry.bytes_up,
            "seconds": entry.seconds,
            "quorum": entry.quorum,
            "error": entry.error,
            **({} if entry.bytes_down is None else {"bytes_down": entry.bytes_down}),
        }
        parts = [json.dumps(head).encode(), *map(encode, entry.replies.values())]
        parts += [encode(changes.put) for changes in entry.changes.values()]
        self._append(parts)
        self._next = len(self._offsets)

    def finish(self, why: str) -> None:
        """Write why the run stopped, unless that stands there already, and make the file durable."""
        if not self.resumed:
            self._append([json.dumps({"stopped": why}).encode()])
            self._next = len(self._offsets)
            os.fsync(self._file.fileno())
        elif _parse_call(self._body(self._next), self.path) is not None:
            raise JournalError(f"{self.path} does not fit: this run has stopped, and recorded calls are left over")

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._file.close()

    def _drop_last(self) -> None:
        self._end = self._offsets.pop()
        self._file.seek(self._end - _DIGEST)
        self._last_digest = self._file.read(_DIGEST)
        self._file.truncate(self._end)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(f"{self.path} is in use by another process") from None

    def _check_open(self) -> None:
        if self._file.closed:
            raise JournalError(f"{self.path} was closed: another federation of this process goes on with its run")

    def _append(self, parts: list[bytes]) -> None:
        self._check_open()
        lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
        digest = blake2b(self._last_digest, digest_size=_DIGEST)
        for part in (lengths, *parts):
            digest.update(part)
        number = len(self._offsets)
        length = len(lengths) + sum(map(len, parts))
        self._file.seek(self._end)
        self._file.write(_frame_head(number, length))
        for part in (lengths, *parts, digest.digest()):
            self._file.write(part)
        self._file.flush()
        self._offsets.append(self._end)
        self._last_digest = digest.digest()
        self._end = self._file.tell()

    def _scan(self) -> list[int]:
        """Check every frame, drop a last one that was cut short, and return where the frames start."""
        offsets: list[int] = []
        size = os.fstat(self._file.fileno()).st_size
        while self._end < size:
            body = self._read_frame(self._end, len(offsets), size)
            digest = (
                None if body is None else blake2b(self._last_digest + body[:-_DIGEST], digest_size=_DIGEST).digest()
            )
            if body is None or digest != body[-_DIGEST:]:
                self._refuse_damage(len(offsets), size)
                self._file.truncate(self._end)
                break
            offsets.append(self._end)
            self._last_digest = body[-_DIGEST:]
            self._end += _FRAME.size + len(body)
        return offsets

    def _read_frame(self, start: int, number: int, size: int) -> bytes | None:
        """Return body and digest of the frame at `start`, or ``None`` if no whole frame of that number is there."""
        self._file.seek(start)
        head = self._file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return None
        magic, found, length, _ = _FRAME.unpack(head)
        whole = magic == _MAGIC and found == number and head == _frame_head(found, length)
        if not whole or length + _DIGEST > size - start - _FRAME.size:
            return None
        return self._file.read(length + _DIGEST)

    def _refuse_damage(self, number: int, size: int) -> None:
        """Raise unless the bad frame `number` is the last thing in the file: then a kill has cut it short."""
        self._file.seek(self._end)
        head = self._file.read(_FRAME.size)
        if len(head) == _FRAME.size:
            _, found, length, _ = _FRAME.unpack(head)
            if head == _frame_head(number, length) and self._end + _FRAME.size + length + _DIGEST >= size:
                return  # its head is good and says that nothing follows
        # The head itself is bad: does another frame follow?
        self._file.seek(self._end + 1)
        rest = self._file.read(size)
        at = rest.find(_MAGIC)
        while at >= 0:
            later = rest[at : at + _FRAME.size]
            if len(later) == _FRAME.size:
                _, found, length, _ = _FRAME.unpack(later)
                if later == _frame_head(found, length) and found > number:
                    what = "head" if number == 0 else f"entry {number} (call {number - 1})"
                    raise JournalError(
                        f"{self.path} is damaged: its {what}, at byte {self._end}, does not match its digest"
                    )
            at = rest.find(_MAGIC, at + 1)

    def _body(self, number: int) -> list[memoryview]:
        self._check_open()
        start = self._offsets[number]
        raw = self._read_frame(start, number, os.fstat(self._file.fileno()).st_size)
        if raw is None:
            raise JournalError(f"{self.path} changed while it was in use")
        return frame_parts(memoryview(raw)[:-_DIGEST])


# A journal that is opened again in the same process passes to the one who opens it, as it would between processes.
_open_here: WeakValueDictionary[Path, Journal] = WeakValueDictionary()


def _take_over(path: Path, journal: Journal) -> None:
    before = _open_here.get(path)
    if before is not None:
        before.close()
    _open_here[path] = journal


def frame_parts(body: memoryview) -> list[memoryview]:
    """Return the parts that a frame was made of."""
    (count,) = struct.unpack_from("<I", body)
    lengths = struct.unpack_from(f"<{count}Q", body, 4)
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(body[at : at + length])
        at += length
    return parts


def _frame_head(number: int, length: int) -> bytes:
    head = struct.pack("<4sQQ", _MAGIC, number, length)
    return head + struct.pack("<I", zlib.crc32(head))


def _parse_call(parts: list[memoryview], path: Path) -> Entry | None:
    """Read the frame of a call, or return ``None`` for the frame that says why the run stopped."""
    head = json.loads(bytes(parts[0]))
    if "stopped" in head:
        return None
    try:
        messages = [decode(part, max_bytes=len(part)) for part in parts[1:]]
    except MessageError as error:
        raise JournalError(f"{path} is damaged in its call {head['number']}: {error}") from None
    replies = dict(zip(head["replies"], messages, strict=False))
    put = messages[len(replies) :]
    changes = {
        site: Changes(values, tuple(gone)) for (site, gone), values in zip(head["changes"].items(), put, strict=True)
    }
    return Entry(
        number=head["number"],
        digest=head["digest"],
        answered=tuple(head["answered"]),
        failed=head["failed"],
        replies=replies,
        changes=changes,
        bytes_up=head["bytes_up"],
        seconds=head["seconds"],
        quorum=head["quorum"],
        error=head["error"],
        bytes_down=head.get("bytes_down"),
    )


def _compare_heads(found: Mapping[str, Any], wanted: Mapping[str, Any], advice: Sequence[str], path: Path) -> None:
    wanted = json.loads(json.dumps(wanted))
    for key in wanted:
        if key not in advice and found.get(key) != wanted[key]:
            was, now = _difference(found.get(key), wanted[key])
            raise JournalError(
                f"{path} belongs to another run: its {key} was {was} and is now {now}; "
                "give this run a folder of its own"
            )


def _difference(was: Any, now: Any) -> tuple[str, str]:
    """Return the two values, or of two dicts the first entries that differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            if was.get(key) != now.get(key):
                return f"{key}={was.get(key, 'absent')}", f"{key}={now.get(key, 'absent')}"
    return repr(was), repr(now)
