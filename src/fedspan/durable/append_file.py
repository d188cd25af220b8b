r"""An append-only file of entries that survives kills and notices tampering.

An entry is one line of JSON, and optionally raw bytes after it::

    {"number": 3, ..., "body_bytes": 1024, "chain": "0123456789abcdef0123456789abcdef"}\n<1024 bytes>\n

``chain`` is a digest of the entry before, this line and its bytes, keyed if the owner has a secret. So files without
raw bytes are plain JSON Lines. An entry that a kill has cut short at the end is dropped when the file is opened again;
any other damage is an error that names the entry. Files have mode 0600.

The journal of a run, a site's run states, its ledger and its audit log are such files.
"""

from __future__ import annotations

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

_DIGEST = 16
_SUFFIX = len(', "chain": "') + 2 * _DIGEST + len('"}')
_ENDING = re.compile(rb', "chain": "[0-9a-f]{32}"}\n')
#: A line of JSON may have this many bytes.
_LONGEST_LINE = 2**28

Parts = tuple[bytes | memoryview, ...]


class AppendFileError(Exception):
    """The file can't be opened, locked, read or written, or was altered; the words continue "the file ..."."""


@dataclass(frozen=True)
class Entry:
    """One entry: its fields, where it begins and ends, and where its raw bytes begin."""

    fields: dict[str, Any]
    start: int
    body: int
    end: int
    chain: str


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

    def append(self, fields: Mapping[str, Any], parts: Iterable[bytes | memoryview] = ()) -> None:
        """Write one entry and hand it to the operating system before returning."""
        if self._file is None:
            raise AppendFileError("was closed")
        if self._read_only:
            raise AppendFileError("was opened for reading only")
        parts = tuple(parts)
        size = sum(map(len, parts))
        text = json.dumps({**fields, **({"body_bytes": size} if parts else {})})
        head = text[:-1].encode() if len(text) > 2 else b'{"empty": true'
        if self.count == 0 and self._key_of is not None:
            self._key = self._key_of(dict(fields))
        chain = self._digest(head, parts)
        line = head + f', "chain": "{chain}"}}\n'.encode()
        entry = Entry(dict(fields), self.end, self.end + len(line), self.end + len(line) + size + bool(parts), chain)
        try:
            _write(self._file, (line, *parts, b"\n" if parts else b""), self.end)
            if self._sync:
                os.fsync(self._file)
                if self.count == 0:
                    _sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self.end)
            raise AppendFileError(f"can't be written: {error.strerror or error}") from None
        self._take(entry)

    def body(self, entry: Entry) -> memoryview:
        """Return the raw bytes of an entry; refuse them if they changed on the disk."""
        if self._file is None:
            raise AppendFileError("was closed")
        size = int(entry.fields.get("body_bytes", 0))
        raw = _read_all(self._file, size, entry.body)
        if len(raw) != size:
            raise AppendFileError("changed while it was in use")
        return memoryview(raw)

    def cut(self, entry: Entry, before: Entry | None) -> None:
        """Drop the last entry; `before` is the one that is then the last."""
        assert self._file is not None
        assert entry.end == self.end
        os.ftruncate(self._file, entry.start)
        self.end, self.count = entry.start, self.count - 1
        self.chain = "" if before is None else before.chain

    def rewrite(self, entries: Iterable[tuple[Mapping[str, Any], Parts]]) -> None:
        """Put new entries in place of all, at once: a kill leaves the old file or the new one."""
        beside = self.path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        accept, self._accept = self._accept, lambda entry: None
        self.close()
        new = AppendFile(beside, sync=False, key_of=self._key_of)
        try:
            for fields, parts in entries:
                new.append(fields, parts)
            if self._sync and new._file is not None:
                os.fsync(new._file)
        finally:
            new.close()
            self._accept = accept
        os.replace(beside, self.path)
        if self._sync:
            _sync_folder(self.path.parent)
        self.count, self.chain, self.end, self._key = new.count, new.chain, new.end, new._key
        self._open()

    def _open(self) -> None:
        flags = os.O_RDONLY if self._read_only else os.O_RDWR | (os.O_CREAT if self._make and not self.end else 0)
        try:
            self._file = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o600)
        except OSError as error:
            raise AppendFileError(f"can't be opened: {error.strerror}") from None
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
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size < self.end:
            raise AppendFileError("has become shorter: entries were taken off its end")
        if self.end and not self._ends_with_chain():
            raise AppendFileError("has other entries than it had: it was replaced or altered")
        while self.end < size:
            try:
                entry = self._entry_at(self.end, size)
                self._take(entry)
            except _TornError as error:
                if self._follows(error.after, size) or not _may_begin(error.line):
                    raise AppendFileError(self._damage(error.why)) from None
                if not self._read_only:
                    os.ftruncate(self._file, self.end)
                return
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise AppendFileError(self._damage(str(error))) from None

    def _entry_at(self, start: int, size: int) -> Entry:
        """Return the entry at `start` after checking its chain."""
        assert self._file is not None
        line = _read_line(self._file, start, size)
        if not line.endswith(b"\n"):
            raise _TornError("its line has no end", line, size)
        body = start + len(line)
        head, suffix = line[: -_SUFFIX - 1], line[-_SUFFIX - 1 : -1]
        try:
            fields = json.loads(head + b"}")
            length = fields.pop("body_bytes", None)
            whole = isinstance(fields, dict) and suffix.startswith(b', "chain": "') and suffix.endswith(b'"}')
            whole &= length is None or (type(length) is int and length >= 0)
        except (ValueError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise _TornError("it is not an entry", line, body)
        end = body if length is None else body + length + 1
        if end > size:
            raise _TornError("its bytes are cut short", line, body)
        if self.count == 0 and self._key_of is not None:
            self._key = self._key_of(fields)
        raw = b"" if length is None else _read_all(self._file, length + 1, body)
        if raw and not raw.endswith(b"\n"):
            raise _TornError("its bytes have no end", line, end)
        parts = () if length is None else (memoryview(raw)[:-1],)
        chain = self._digest(head, parts)
        if suffix[-2 - 2 * _DIGEST : -2].decode("ascii", "replace") != chain:
            raise _TornError("its digest does not match", line, end)
        if length is not None:
            fields["body_bytes"] = length
        return Entry(fields, start, body, end, chain)

    def _take(self, entry: Entry) -> None:
        self._accept(entry)
        self.end, self.chain = entry.end, entry.chain
        self.count += 1

    def _digest(self, head: bytes, parts: Parts) -> str:
        digest = blake2b(self.chain.encode() + b"\0", key=self._key, digest_size=_DIGEST)
        digest.update(head)
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

    def _ends_with_chain(self) -> bool:
        """Return whether the last known entry is still where it was (files of several processes have no raw bytes)."""
        if not self._shared:
            return True
        assert self._file is not None
        tail = f'"{self.chain}"}}\n'.encode()
        return _read_all(self._file, len(tail), self.end - len(tail)) == tail

    def _follows(self, start: int, size: int) -> bool:
        """Return whether an intact-looking entry follows: then the bad one was not cut short by a kill."""
        assert self._file is not None
        rest = _read_all(self._file, size - start, start)
        return _ENDING.search(rest) is not None

    def _damage(self, why: str) -> str:
        return f"is damaged or was altered at entry {self.count} ({why})"


class _TornError(Exception):
    """An entry that is not whole; a kill may have cut it short if nothing follows `after`."""

    def __init__(self, why: str, line: bytes, after: int) -> None:
        super().__init__(why)
        self.why, self.line, self.after = why, line, after


def _may_begin(line: bytes) -> bool:
    """Return whether a torn line can be the beginning of an entry, or zeros that a loss of power left.

    Another kind of file is left as it is.
    """
    line = line.rstrip(b"\0")
    return line.startswith(b'{"') if len(line) > 1 else line in (b"", b"{")


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
