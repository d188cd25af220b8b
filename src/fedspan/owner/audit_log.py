"""The site's own record of who requested what and what left, as JSON Lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry
from fedspan.errors import PolicyError

OUTCOMES = ("answered", "refused", "failed")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("when", "who", "role", "run", "step", "how", "outcome", "why"), str),
    **dict.fromkeys(("call", "part", "bytes"), int),
    "budget_left": (int, float, type(None)),
    "transforms": list,
    "ran": bool,
}
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


class AuditLog:
    """An append-only file (mode 0600), made where it does not exist and continued where it does.

    `append` returns when the line is in the file, so that it survives the end of the process. Two processes may write
    to one log: each first reads what the other has written. Opening the log notices a line that was changed or removed,
    because the next one has its digest. Lines removed from the *end* are noticed only by a reader who kept the last
    digest (`last`), and who can write to the file can replace all of it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = AuditLog(Path(folder.name) / "audit.jsonl")
    >>> line = dict.fromkeys(("role", "step", "why"), "") | {"part": 0, "transforms": [], "bytes": 8}
    >>> line |= {"who": "alice", "run": "r", "call": 0, "how": "ask", "outcome": "answered", "ran": True}
    >>> log.append(line | {"budget_left": None})
    >>> log.rounds("alice").total, log.rounds("bob").total
    (1, 0)
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._day = ""
        self._rounds: dict[str, Rounds] = {}
        self._file = AppendFile(path, shared=True, read_only=read_only, make=not read_only, accept=self._take)
        self.check()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line; when this returns it is in the file."""
        cut = {key: value[:_LONGEST] if isinstance(value, str) else value for key, value in entry.items()}
        whole = {"when": now().isoformat(timespec="milliseconds"), **cut}
        try:
            _check(whole)  # an unreadable line is not written
        except ValueError as error:
            raise AuditLogError(self._sentence(f"can't take a line: {error}")) from None
        with self._errors(), self._file.locked():
            self._file.append(whole)

    def check(self) -> None:
        """Refuse a log that is missing or was altered; read what others have written."""
        with self._errors(), self._file.locked():
            pass

    def rounds(self, who: str) -> Rounds:
        """Return the rounds of a user today (UTC), or on the day of the latest line where the clock is behind it."""
        today = now().date().isoformat()
        return self._rounds.get(who, Rounds()) if self._day >= today else Rounds()

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self._file.count

    @property
    def last(self) -> str:
        """The digest of the last line."""
        return self._file.chain

    def _take(self, entry: Entry) -> None:
        """Take in one line; `ValueError` refuses the log."""
        fields = entry.fields
        _check(fields)
        day = fields["when"][:10]
        if day > self._day:  # a clock that was set back does not lift a limit
            self._day, self._rounds = day, {}
        if fields["ran"]:
            self._rounds.setdefault(fields["who"], Rounds()).add(fields["run"], fields["call"], fields["how"])

    def _sentence(self, what: str) -> str:
        return f"this site's audit log {what}, and nothing leaves it unlogged"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except AppendFileError as error:
            raise AuditLogError(self._sentence(str(error))) from None


def read_lines(path: Path) -> list[tuple[dict[str, Any], str]]:
    """Return the entries of a log and their digests; refuse a log that was altered. Nothing is written."""
    found: list[tuple[dict[str, Any], str]] = []

    def take(entry: Entry) -> None:
        _check(entry.fields)
        found.append((entry.fields, entry.chain))

    try:
        with AppendFile(path, make=False, shared=True, read_only=True, accept=take).locked():
            return found
    except AppendFileError as error:
        raise AuditLogError(f"the audit log {path} {error}") from None


def _check(fields: Mapping[str, Any]) -> None:
    """Refuse with a `ValueError` what is no line of an audit log."""
    for key, kind in _KINDS.items():
        value = fields.get(key, _KINDS)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"its {key!r} is missing or of the wrong type")
    datetime.fromisoformat(fields["when"])


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
