r"""An append-only file of entries that survives kills and notices tampering.

An entry is one line of JSON, and optionally raw bytes after it::

    {"number": 3, ..., "body_bytes": 1024, "chain": "0123456789abcdef0123456789abcdef"}\n<1024 bytes>\n

``chain`` is a digest of the entry before, this line and its bytes, keyed if the owner has a secret. So files without
raw bytes are plain JSON Lines. An entry that a kill has cut short at the end is dropped when the file is opened again.
Any other damage is an error that names the entry. Files have mode 0600.

The journal of a run, a site's run states, its ledger and its audit log are such files.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.checks import json_value

_DIGEST = 16
_SUFFIX = len(', "chain": "') + 2 * _DIGEST + len('"}')
#: The end of an entry's line; another entry that begins one byte after such an end, in the same line; a whole line.
_END = re.compile(rb', "chain": "[0-9a-f]{32}"\}\n')
_NEXT_IN_LINE = re.compile(rb', "chain": "[0-9a-f]{32}"\}.\{"', re.DOTALL)
_LINE = re.compile(rb'^(\{".*), "chain": "([0-9a-f]{32})"\}\n', re.MULTILINE)
#: Parts of fewer bytes, on average, are written as one.
_JOINED_BYTES = 2**14
#: Errors of a disk without room for another file.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: Bytes of the longest line of JSON.
_LONGEST_LINE = 2**24

Parts = tuple[bytes | memoryview, ...]


class AppendFileError(Exception):
    """The file can't be opened, locked, read or written, or was altered; the words continue "the file ..."."""


class UnwritableError(AppendFileError):
    """The disk takes nothing more. What the file has is whole."""


@dataclass(frozen=True)
class Entry:
    """One entry: its fields, where it and its raw bytes begin, and where it ends."""

    fields: dict[str, Any]
    start: int
    body: int
    end: int
    chain: str

    @property
    def size(self) -> int:
        """The number of raw bytes."""
        return max(0, self.end - self.body - 1)


class AppendFile:
    """An append-only file.

    Parameters
    ----------
    path : path
    make : bool, default=True
        Create the file (mode 0600) where it does not exist.
    shared : bool, default=False
        Several processes may write: each locks the file for a moment (`locked`) and first reads what others wrote.
        Otherwise this process locks the file until `close`.
    read_only : bool, default=False
        Neither lock exclusively nor change anything, not even a torn tail.
    sync : bool, default=False
        Wait until every entry is on the disk, so that it also survives a loss of power.
    key_of : callable, optional
        Takes the fields of the first entry and returns the key (bytes) of all chains; ``ValueError`` refuses the file.
    accept : callable, optional
        Called with every entry that is read or written, in order; ``ValueError`` refuses the file at this entry.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        make: bool = True,
        shared: bool = False,
        read_only: bool = False,
        sync: bool = False,
        key_of: Callable[[dict[str, Any]], bytes] | None = None,
        accept: Callable[[Entry], None] = lambda entry: None,
    ) -> None:
        self.path = Path(path)
        self.count = 0
        self.chain = ""
        self.end = 0
        self._make = make
        self._shared = shared
        self._read_only = read_only
        self._sync = sync
        self._key_of = key_of
        self._key = b""
        self._accept = accept
        self._named = False  # whether the folder's entry of the file is on the disk
        self._thread = threading.RLock()
        self._file: int | None = None
        if not shared:
            self._open()
            try:
                self._read_on()
            except BaseException:
                self.close()
                raise

    @property
    def closed(self) -> bool:
        """Whether the file is not open now."""
        return self._file is None

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            raise AppendFileError("was closed")
        return self._file

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a shared file alone, with all entries of other processes read."""
        with self._thread:
            self._open()
            try:
                self._read_on()
                yield
            finally:
                self.close()

    @property
    def altered(self) -> bool:
        """Whether another program has cut or lengthened the file since this process wrote to it."""
        return os.fstat(self._descriptor).st_size != self.end

    def append(self, fields: Mapping[str, Any], parts: Iterable[bytes | memoryview] = ()) -> None:
        """Write one entry and hand it to the operating system before returning."""
        descriptor = self._descriptor
        if self._read_only:
            raise AppendFileError("was opened for reading only")
        if self.altered:
            raise AppendFileError(
                "was cut or lengthened by another program while it was in use: begin the run again, in a new folder"
            )
        parts = tuple(parts)
        size = sum(map(len, parts))
        if len(parts) > 1 and size <= _JOINED_BYTES * len(parts):  # many small parts: one digest, one write
            parts = (b"".join(parts),)
        head = json.dumps({**fields, **({"body_bytes": size} if parts else {})})[:-1].encode()
        if self.count == 0 and self._key_of is not None:
            self._key = self._key_of(dict(fields))
        if len(head) > _LONGEST_LINE - _SUFFIX - 1:
            raise AppendFileError(f"can't hold an entry with {len(head):,} bytes of JSON, at most {_LONGEST_LINE:,}")
        chain = self._digest(self.chain, head, parts)
        line = head + f', "chain": "{chain}"}}\n'.encode()
        entry = Entry(dict(fields), self.end, self.end + len(line), self.end + len(line) + size + bool(parts), chain)
        try:
            _write(descriptor, (line, *parts, b"\n" if parts else b""), self.end)
            if self._sync:
                self._to_disk()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, self.end)
            raise UnwritableError(f"can't be written: {error.strerror or error}") from None
        try:
            self._take(entry)
        except Exception:  # an entry that is refused now would be refused by every reader, and close the file for all
            os.ftruncate(descriptor, self.end)
            raise

    def sync(self) -> None:
        """Wait until all that was written is on the disk, so that it survives a loss of power."""
        try:
            self._to_disk()
        except OSError as error:
            raise UnwritableError(f"can't be written: {error.strerror or error}") from None

    def _to_disk(self) -> None:
        os.fsync(self._descriptor)
        if not self._named:
            _sync_folder(self.path.parent)
            self._named = True

    def body(self, entry: Entry) -> memoryview:
        """Return the raw bytes of an entry."""
        raw = _read_all(self._descriptor, entry.size, entry.body)
        if len(raw) != entry.size:
            raise AppendFileError("changed while it was in use")
        return memoryview(raw)

    def cut(self, entry: Entry, before: Entry | None) -> None:
        """Drop the last entry; `before` is the one that is then the last."""
        assert entry.end == self.end
        os.ftruncate(self._descriptor, entry.start)
        self.end, self.count = entry.start, self.count - 1
        self.chain = "" if before is None else before.chain

    def rewrite(self, entries: Iterable[tuple[Mapping[str, Any], Parts]]) -> None:
        """Put new entries in place of all, at once: a kill leaves the old file or the new one."""
        beside = self.path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        self.close()
        new = AppendFile(beside, sync=self._sync, key_of=self._key_of)
        try:
            for fields, parts in entries:
                new.append(fields, parts)
            new.sync()
        finally:
            new.close()
        os.replace(beside, self.path)
        _sync_folder(self.path.parent)
        self.count, self.chain, self.end, self._key = new.count, new.chain, new.end, new._key
        self._open()

    def _open(self) -> None:
        flags = os.O_RDONLY if self._read_only else os.O_RDWR | (os.O_CREAT if self._make and not self.end else 0)
        try:
            self._file = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            kind = UnwritableError if error.errno in _NO_ROOM else AppendFileError
            raise kind(f"can't be opened: {error.strerror}") from None
        try:
            if self._shared and os.name == "posix" and os.fstat(self._file).st_mode & 0o077:
                raise AppendFileError("can be read by others: restrict it with chmod 600")
            if self._shared or not self._read_only:
                _lock(self._file, exclusive=not self._read_only, wait=self._shared)
        except BaseException:
            self.close()
            raise

    def _read_on(self) -> None:
        """Read what was written since the last look; drop a last entry that was cut short."""
        size = os.fstat(self._descriptor).st_size
        if size < self.end:
            raise AppendFileError("has become shorter: entries were taken off its end")
        if self.end and self._shared and not self._ends_with_chain():
            raise AppendFileError("has other entries than it had: it was replaced or altered")
        while self.end < size:
            try:
                self._take(self._entry_at(self.end, size))
            except _TornError as error:
                if self._follows(error, size) or not _may_be_torn(error.line, error.has_bytes):
                    raise self._damage(error) from None
                if not self._read_only:
                    os.ftruncate(self._descriptor, self.end)
                return
            except (ValueError, KeyError, TypeError) as error:
                raise self._damage(error) from None

    def _entry_at(self, start: int, size: int) -> Entry:
        """Return the entry at `start` after checking its chain."""
        line = _read_line(self._descriptor, start, size)
        if not line.endswith(b"\n"):
            raise _TornError("its line has no end", line, size)
        body = start + len(line)
        head, suffix = line[: -_SUFFIX - 1], line[-_SUFFIX - 1 :]
        try:
            fields = json_value(head + b"}", _LONGEST_LINE)
            length = fields.pop("body_bytes", None)
            whole = _END.fullmatch(suffix) and (length is None or (type(length) is int and length >= 0))
        except (ValueError, AttributeError):
            whole = None
        if not whole:
            raise _TornError("it is not an entry", line, body)
        chain = suffix[-2 * _DIGEST - 3 : -3].decode()
        end = body if length is None else body + length + 1
        if end > size:
            raise _TornError("its bytes are cut short", line, body, chain, has_bytes=True)
        if self.count == 0 and self._key_of is not None:
            self._key = self._key_of(fields)
        raw = _read_all(self._descriptor, end - body, body)
        if raw and not raw.endswith(b"\n"):
            raise _TornError("its bytes have no end", line, end, has_bytes=True)
        if self._digest(self.chain, head, (memoryview(raw)[:-1],)) != chain:
            raise _TornError("its digest does not match", line, end, has_bytes=length is not None)
        return Entry(fields, start, body, end, chain)

    def _take(self, entry: Entry) -> None:
        self._accept(entry)
        self.end, self.chain = entry.end, entry.chain
        self.count += 1

    def _digest(self, before: str, head: bytes, parts: Parts) -> str:
        digest = blake2b(before.encode() + b"\0", key=self._key, digest_size=_DIGEST)
        digest.update(head)
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

    def _ends_with_chain(self) -> bool:
        """Return whether the last known entry of a shared file, which has no raw bytes, is still where it was."""
        tail = f'"{self.chain}"}}\n'.encode()
        return _read_all(self._descriptor, len(tail), self.end - len(tail)) == tail

    def _follows(self, torn: _TornError, size: int) -> bool:
        """Return whether another entry follows: then a kill has not cut the bad one short."""
        rest = _read_all(self._descriptor, size - torn.after, torn.after)
        if not torn.chain:
            return bool(_END.search(rest) or _NEXT_IN_LINE.search(torn.line))
        # The raw bytes of an entry may quote others. Only an entry that continues the chain really follows.
        for found in _LINE.finditer(rest):
            with suppress(ValueError, AttributeError, TypeError):
                length = json_value(found[1] + b"}", _LONGEST_LINE).get("body_bytes", 0)
                parts = (memoryview(rest)[found.end() : found.end() + length],)
                if self._digest(torn.chain, found[1], parts) == found[2].decode():
                    return True
        return False

    def _damage(self, why: Exception) -> AppendFileError:
        return AppendFileError(f"is damaged or was altered at entry {self.count} ({why})")


class _TornError(Exception):
    """An entry that is not whole; a kill may have cut it short if nothing follows `after`.

    `chain` is the entry's own, where its line is whole and its bytes are not.
    """

    def __init__(self, why: str, line: bytes, after: int, chain: str = "", *, has_bytes: bool = False) -> None:
        super().__init__(why)
        self.line, self.after, self.chain, self.has_bytes = line, after, chain, has_bytes


def _may_be_torn(line: bytes, has_bytes: bool) -> bool:
    """Return whether a kill, or a loss of power, can have left this last line of an entry, with or without raw bytes.

    A whole line without raw bytes after it was altered, and JSON without a chain is another kind of file.
    """
    zeros, line = b"\0" in line, line.rstrip(b"\0")
    if len(line) < 2:
        return line in (b"", b"{")
    if line.endswith(b"\n"):
        return zeros or has_bytes
    return line.startswith(b'{"') and (_END.search(line + b"\n") is not None or not _is_json(line))


def _is_json(line: bytes) -> bool:
    try:
        json_value(line, _LONGEST_LINE)
    except ValueError:
        return False
    return True


def _read_line(file: int, start: int, size: int) -> bytes:
    found = b""
    while start + len(found) < size and len(found) < _LONGEST_LINE:
        piece = _read_all(file, min(2**16, size - start - len(found)), start + len(found))
        at = piece.find(b"\n")
        if at >= 0:
            return found + piece[: at + 1]
        if not piece:
            break
        found += piece
    return found


def _read_all(file: int, size: int, start: int) -> bytes:
    pieces = []
    os.lseek(file, start, os.SEEK_SET)
    while size > 0 and (piece := os.read(file, min(size, 2**30))):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write(file: int, parts: Parts, at: int) -> None:
    os.lseek(file, at, os.SEEK_SET)
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # Windows can't open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(file: int, *, exclusive: bool, wait: bool) -> None:
    """Lock a file for this process (POSIX) until it is closed."""
    try:
        import fcntl
    except ImportError:
        if wait:
            raise AppendFileError("needs a system that can lock files: Linux or macOS") from None
        return
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        raise AppendFileError("is in use by another process") from None
