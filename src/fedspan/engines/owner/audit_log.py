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
_LONGEST = 500  # of a text that came from outside


class AuditLogError(PolicyError):
    """The audit log cannot be used, and nothing leaves a site unlogged."""


@dataclass
class Rounds:
    """A user's rounds of one day. The parts of one secure sum are one round; what was answered twice are two."""

    total: int = 0
    _parts: dict[tuple[str, int], Counter[int]] = field(default_factory=dict)

    def after(self, run: str, call: int, part: int) -> int:
        """Return how many there would be after one more answer."""
        parts = self._parts.get((run, call), Counter())
        return self.total + (parts[part] + 1 > max(parts.values(), default=0))

    def add(self, run: str, call: int, part: int) -> None:
        """Count one more answer."""
        self.total = self.after(run, call, part)
        self._parts.setdefault((run, call), Counter())[part] += 1


@dataclass
class _Known:
    """What the lines so far say."""

    lines: int = 0
    read_to: int = 0
    chain: str = ""
    day: str = ""
    rounds: dict[str, Rounds] = field(default_factory=dict)

    def take(self, line: bytes) -> dict[str, Any]:
        """Take in one line, or refuse it with a `ValueError`."""
        entry = json.loads(line)
        if not isinstance(entry, dict) or entry.get("before") != self.chain:
            raise ValueError("the line before it is another one than when it was written")
        day, who, outcome = str(entry["when"])[:10], str(entry["who"]), entry["outcome"]
        run, call = str(entry["run"]), int(entry["call"])
        if day != self.day:
            self.day, self.rounds = day, {}
        if outcome != "refused":
            self.rounds.setdefault(who, Rounds()).add(run, call, int(entry["part"]))
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
    >>> log.append({"who": "alice", "run": "r", "call": 0, "part": 0, "outcome": "answered"})
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
        """Return the rounds in which a user was answered, or failed, today (UTC)."""
        today = now().date().isoformat()
        return self._known.rounds.get(who, Rounds()) if self._known.day == today else Rounds()

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
        """Take in what was written since the last look; drop a last line that was never finished, and never left."""
        size = os.fstat(file).st_size
        if size < self._known.read_to:
            raise AuditLogError(self._sentence("has become shorter"))
        if size == self._known.read_to:
            return
        with os.fdopen(os.dup(file), "rb") as lines:
            lines.seek(self._known.read_to)
            for line in lines:
                if not line.endswith(b"\n"):
                    os.truncate(file, self._known.read_to)
                    break
                try:
                    self._known.take(line[:-1])
                except (ValueError, KeyError, TypeError) as error:
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
    except OSError as error:
        raise AuditLogError(f"the audit log {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise AuditLogError(f"the audit log {path} was altered at line {known.lines + 1} ({error})") from None


def _digest_of(line: bytes) -> str:
    """Return what the next line says of this one."""
    return blake2b(line, digest_size=16).hexdigest()


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
