"""The lines of a gateway's input: standard input, or a file that may grow, be followed, and be rotated.

A file that is rotated gets another name, with a number or a date (``rows.jsonl.1``, ``rows-2026-01-31.jsonl``), and a
new one begins. What is left of the old one is read first, then the files between, by the times of their last rows.
After a start the file that was read before is found by its bytes before the place that was reached.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

#: A line without its end, or None for one that is too long; and the bytes that it takes.
Line = tuple[bytes | None, int]

#: Bytes that are read at once, and of the longest line.
_CHUNK, LONGEST = 2**16, 2**20
#: Bytes before a place by which its file is known again.
_KNOWN_BY = 64
#: Seconds between two looks at a file that is followed.
_PAUSE = 0.2


class LineBuffer:
    """Makes whole lines of pieces; holds no more than one longest line."""

    def __init__(self) -> None:
        self._rest, self._dropped = b"", 0

    def whole(self, piece: bytes) -> list[Line]:
        """Return the lines that end in the piece."""
        *ended, rest = (self._rest + piece).split(b"\n")
        found: list[Line] = []
        for line in ended:
            long = self._dropped or len(line) > LONGEST
            found.append((None if long else line, self._dropped + len(line) + 1))
            self._dropped = 0
        self._rest = rest
        if self._dropped or len(rest) > LONGEST:
            self._dropped, self._rest = self._dropped + len(rest), b""
        return found

    def last(self) -> list[Line]:
        """Return what is left as a line: it counts the end that it does not have yet."""
        found: list[Line] = []
        if self._rest or self._dropped:
            found = [(None if self._dropped else self._rest, self._dropped + len(self._rest) + 1)]
        self._rest, self._dropped = b"", 0
        return found


def lines_of(descriptor: int) -> Iterator[list[Line]]:
    """Yield the lines of an input that ends; what is left of a line at its end is a line."""
    buffer = LineBuffer()
    while piece := os.read(descriptor, _CHUNK):
        yield buffer.whole(piece)
    yield buffer.last()


class RowFile:
    """A file of lines, opened behind those that are dealt with.

    `before` are the bytes just before `offset`, as `known_by` gave them. Of the files that have them it is the one with
    this `inode`, or else `path`, or the last one that was rotated. ``FileNotFoundError``: no file has these bytes.
    """

    def __init__(self, path: Path, offset: int = 0, before: bytes = b"", inode: int = 0) -> None:
        self._path, self._done = path, set[tuple[int, int]]()
        last_first = sorted(self._rotated(), key=lambda pair: -pair[0].st_mtime_ns)
        candidates = [path, *(file for _, file in last_first)]
        if inode:  # first: several files may begin with the same names of columns; the others stay in order
            candidates.sort(key=lambda file: not file.exists() or file.stat().st_ino != inode)
        for candidate in candidates:
            try:
                self._descriptor = os.open(candidate, os.O_RDONLY)
            except FileNotFoundError:  # it was rotated just now
                continue
            if os.fstat(self._descriptor).st_size + 1 >= offset and self.known_by(offset)[: len(before)] == before:
                os.lseek(self._descriptor, offset, os.SEEK_SET)  # the last line may have no end
                return
            os.close(self._descriptor)
        raise FileNotFoundError(path)

    def close(self) -> None:
        """Close the file that is open."""
        os.close(self._descriptor)

    @property
    def inode(self) -> int:
        """The number on the disk of the file that is open."""
        return os.fstat(self._descriptor).st_ino

    def known_by(self, offset: int) -> bytes:
        """Return the bytes just before a place of the file that is open."""
        start = max(0, offset - _KNOWN_BY)
        return os.pread(self._descriptor, offset - start, start)

    def lines(self, *, follow: bool = False) -> Iterator[list[Line] | None]:
        """Yield the whole lines that came since, and ``None`` before those of a next file.

        An empty list states that a followed file has no more. What is left of a line where a file ends is a line,
        unless it is followed.
        """
        buffer, ended = LineBuffer(), False
        while True:
            piece = os.read(self._descriptor, _CHUNK)
            if piece:
                ended = False
                yield buffer.whole(piece)
                continue
            following = self._next()
            if following is not None and (ended or not follow):
                try:
                    fresh = os.open(following, os.O_RDONLY)
                except FileNotFoundError:  # it was rotated just now: find its new name
                    continue
                yield buffer.last()
                self._go_on_with(fresh)
                yield None
                continue
            ended = following is not None  # its writer may still have it open: look once more
            if not follow:
                break
            yield []
            time.sleep(_PAUSE)
        yield buffer.last()

    def _go_on_with(self, fresh: int) -> None:
        self._done.add(_identity(os.fstat(self._descriptor)))
        os.close(self._descriptor)
        self._descriptor = fresh
        self._done.discard(_identity(os.fstat(fresh)))  # one that was cut begins again

    def _next(self) -> Path | None:
        """Return the file that comes after the one that is open, if there is one."""
        own, place = os.fstat(self._descriptor), os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            last = self._path.stat()
        except FileNotFoundError:  # it is being rotated
            return None
        if _identity(last) == _identity(own):
            return self._path if own.st_size + 1 < place else None
        known = self._done | {_identity(own)}
        between = [
            (found.st_mtime_ns, path)
            for found, path in self._rotated()
            if found.st_mtime_ns >= own.st_mtime_ns and _identity(found) not in known
        ]
        return min(between)[1] if between else self._path

    def _rotated(self) -> list[tuple[os.stat_result, Path]]:
        """Return the files beside it that have its name, and a number or a date."""
        name, stem, suffix = map(re.escape, (self._path.name, self._path.stem, self._path.suffix))
        pattern = re.compile(rf"{name}[.-]\d[\d.T-]*|{stem}[.-]\d[\d.T-]*{suffix}")
        found = []
        for path in self._path.parent.iterdir():
            if pattern.fullmatch(path.name) and path.is_file():
                with contextlib.suppress(FileNotFoundError):  # it got its next name
                    found.append((path.stat(), path))
        return found


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
