"""The site's own record of who asked what and what left: JSON Lines, each with the digest of the line before it."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.errors import PolicyError

OUTCOMES = ("answered", "refused", "failed")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("when", "who", "role", "run", "step", "how", "outcome", "why", "before"), str),
    **dict.fromkeys(("call", "part", "bytes"), int),
    "budget_left": (int, float, type(None)),
    "lenses": list,
    "ran": bool,
}
_BEGINNING = b'{"when": "'  # of every line
_LONGEST = 500  # of a text that came from outside


class AuditLogError(PolicyError):
    """The audit log cannot be used, and nothing leaves a site unlogged."""


@dataclass
class Rounds:
    """A user's rounds of one day. The rounds of one secure sum are one; one number asked for two things are two.

    What follows in a sum is free as often as its first question, which alone reads data, was asked in the same call.
    """

    total: int = 0
    _asked: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)

    def after(self, run: str, call: int, how: str) -> int:
        """Return how many there would be after one more."""
        asked = self._asked.get((run, call), Counter())
        return self.total + (asked[_slot(how)] + 1 > max(asked.values(), default=0))

    def add(self, run: str, call: int, how: str) -> None:
        """Count one more."""
        self.total = self.after(run, call, how)
        self._asked.setdefault((run, call), Counter())[_slot(how)] += 1


def _slot(how: str) -> str:
    """Return what is counted together: all that reads data; each of the further rounds of a secure sum."""
    return how if how.startswith("secure ") and how != "secure offer" else ""


@dataclass
class _Known:
    """What the lines so far say."""

    lines: int = 0
    read_to: int = 0
    chain: str = ""
    day: str = ""
    rounds: dict[str, Rounds] = field(default_factory=dict)

    def checked(self, line: bytes) -> dict[str, Any]:
        """Return what a line says, or refuse one that cannot come next with a `ValueError`."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise ValueError("it is no line of an audit log")
        if entry.get("before") != self.chain:
            raise ValueError("the line before it is another one than when it was written")
        for key, kind in _KINDS.items():
            value = entry.get(key, _KINDS)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise ValueError(f"its {key!r} is not what it must be")
        datetime.fromisoformat(entry["when"])
        return entry

    def take(self, line: bytes) -> dict[str, Any]:
        """Take in one line, or refuse it with a `ValueError`."""
        entry = self.checked(line)
        day = entry["when"][:10]
        if day > self.day:  # a clock that was set back counts on
            self.day, self.rounds = day, {}
        if entry["ran"]:
            self.rounds.setdefault(entry["who"], Rounds()).add(entry["run"], entry["call"], entry["how"])
        self.chain = _digest_of(line)
        self.lines += 1
        self.read_to += len(line) + 1
        return entry


class AuditLog:
    """An append-only file (mode 0600), made where it does not exist and continued where it does.

    Each line is flushed before `append` returns, so that it survives the end of the process. Two processes may write to
    one log: each takes in what the other has written first. A line that was changed, or taken out, is noticed when the
    log is opened, because the next one has its digest; lines taken off the *end* are noticed only by whoever kept the
    last digest (`last`), and who can write to the file can write all of it anew.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = AuditLog(Path(folder.name) / "audit.jsonl")
    >>> line = dict.fromkeys(("role", "step", "why"), "") | {"part": 0, "lenses": [], "bytes": 8, "budget_left": None}
    >>> log.append({"who": "alice", "run": "r", "call": 0, "how": "ask", "outcome": "answered", "ran": True, **line})
    >>> log.rounds("alice").total, log.rounds("bob").total
    (1, 0)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = threading.Lock()
        self._known = _Known()
        with self._locked(make=True):
            pass

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line; when this returns it is in the file."""
        with self._locked() as file:
            cut = {key: value[:_LONGEST] if isinstance(value, str) else value for key, value in entry.items()}
            whole = {"when": now().isoformat(timespec="milliseconds"), **cut, "before": self._known.chain}
            line = json.dumps(whole).encode()
            try:
                self._known.checked(line)  # what could not be read again is not written
            except ValueError as error:
                raise AuditLogError(self._sentence(f"cannot take a line: {error}")) from None
            at = self._known.read_to
            try:
                written = os.pwrite(file, line + b"\n", at)
                if written != len(line) + 1:
                    raise OSError(0, "the disk is full")
            except OSError as error:
                os.truncate(file, at)
                raise AuditLogError(self._sentence(f"cannot be written: {error.strerror}")) from None
            self._known.take(line)

    def check(self) -> None:
        """Refuse if the log is gone or was altered; take in what others have written."""
        with self._locked():
            pass

    def rounds(self, who: str) -> Rounds:
        """Return the rounds of a user today (UTC), or on the day of the latest line where the clock is behind it."""
        today = now().date().isoformat()
        return self._known.rounds.get(who, Rounds()) if self._known.day >= today else Rounds()

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self._known.lines

    @property
    def last(self) -> str:
        """The digest of the last line."""
        return self._known.chain

    def _sentence(self, what: str) -> str:
        return f"this site's audit log {what}, and nothing leaves it unlogged"

    @contextmanager
    def _locked(self, make: bool = False) -> Iterator[int]:
        """Have the file to this process alone, with all that others have written to it known."""
        try:
            import fcntl
        except ImportError:
            raise AuditLogError("an audit log needs a system that can lock files: Linux or macOS") from None
        with self._thread:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
            except OSError as error:
                raise AuditLogError(self._sentence(f"cannot be opened: {error.strerror}")) from None
            try:
                if os.fstat(file).st_mode & 0o077:
                    raise AuditLogError(self._sentence("can be read by others (take that back with chmod 600)"))
                fcntl.flock(file, fcntl.LOCK_EX)
                self._read(file)
                yield file
            finally:
                os.close(file)

    def _read(self, file: int) -> None:
        """Take in what was written since the last look; drop a last line that was never finished, and never left.

        A file that is something else is left as it is.
        """
        size = os.fstat(file).st_size
        if size < self._known.read_to:
            raise AuditLogError(self._sentence("has become shorter"))
        if size == self._known.read_to:
            return
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(self._known.read_to)
            for line in lines:
                try:
                    if not line.endswith(b"\n"):
                        _check_unfinished(line)
                        os.truncate(file, self._known.read_to)
                        break
                    self._known.take(line[:-1])
                except ValueError as error:
                    place = f"was altered at line {self._known.lines + 1} ({error})"
                    raise AuditLogError(self._sentence(place)) from None


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the entries of a log and their digests, and refuse the first one that does not fit what is before.

    Nothing is written; a last line that is being written is left out.
    """
    known = _Known()
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield known.take(line[:-1]), known.chain
                else:
                    _check_unfinished(line)
    except OSError as error:
        raise AuditLogError(f"the audit log {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise AuditLogError(f"the audit log {path} was altered at line {known.lines + 1} ({error})") from None


def _check_unfinished(line: bytes) -> None:
    if not _BEGINNING.startswith(line[: len(_BEGINNING)]):
        raise ValueError("it is no line of an audit log")


def _digest_of(line: bytes) -> str:
    """Return what the next line says of this one."""
    return blake2b(line, digest_size=16).hexdigest()


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
