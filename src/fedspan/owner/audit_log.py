"""The site's own record of each request, its sender and what left, as JSON Lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry, UnwritableError
from fedspan.errors import DiskError, PolicyError
from fedspan.owner.study_plan import SECURE

OUTCOMES = ("answered", "refused", "failed")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("when", "who", "role", "run", "step", "how", "stage", "outcome", "why"), str),
    **dict.fromkeys(("call", "part", "bytes"), int),
    "budget_left": (int, float, type(None)),
    "transforms": list,
    "ran": bool,
}
_LONGEST = 500  # of a text that came from outside
_MOST_TRANSFORMS = 20


class AuditLogError(PolicyError):
    """The audit log cannot be used, and nothing leaves a site unlogged."""


@dataclass
class DailyRounds:
    """A user's rounds of one day: calls for which data were read.

    All stages of one secure sum are one round. Only its first stage reads data: a later stage is free as often as the
    first one was counted for the same call. Another request under the same number is another round.
    """

    total: int = 0
    _counted: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)

    def after(self, run: str, call: int, stage: str) -> int:
        """Return the total after one more call."""
        counted = self._counted.get((run, call), Counter())
        return self.total + (counted[_slot(stage)] + 1 > max(counted.values(), default=0))

    def has(self, run: str, call: int, stage: str) -> bool:
        """Return whether a call was counted."""
        return self._counted.get((run, call), Counter())[_slot(stage)] > 0

    def add(self, run: str, call: int, stage: str) -> None:
        """Count one more call."""
        self.total = self.after(run, call, stage)
        self._counted.setdefault((run, call), Counter())[_slot(stage)] += 1


def _slot(stage: str) -> str:
    """Return the stages that are counted together: those that read data, and each of the others."""
    return "" if stage == "offer" else stage


class AuditLog:
    """An append-only file (mode 0600), made where it does not exist and continued where it does.

    `append` returns when the line is in the file, so that it survives the end of the process. Two processes may write
    to one log: each first reads what the other has written. Opening the log notices a line that was changed or removed,
    because the next one has its digest. Lines removed from the *end* are noticed only by a reader that kept the last
    digest. A process that can write to the file can replace all of it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = AuditLog(Path(folder.name) / "audit.jsonl")
    >>> line = dict.fromkeys(("role", "step", "stage", "why"), "") | {"part": 0, "transforms": [], "bytes": 8}
    >>> line |= {"who": "alice", "run": "r", "call": 0, "how": "ask", "outcome": "answered", "ran": True}
    >>> log.append(line | {"budget_left": None})
    >>> log.rounds("alice").total, log.rounds("bob").total
    (1, 0)
    """

    def __init__(self, path: Path) -> None:
        self._day = ""
        self._rounds: dict[str, DailyRounds] = {}
        self.last_budget: tuple[float, str] | None = None  # what was left of the privacy budget, and when
        self._calls: dict[tuple[str, str, str, tuple[str, ...]], DailyRounds] = {}  # over all days
        self._file = AppendFile(path, shared=True, accept=self._take)
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
        """Refuse a log that was altered; read what other processes have written."""
        with self._errors(), self._file.locked():
            pass

    def rounds(self, user: str) -> DailyRounds:
        """Return the rounds of a user today (UTC), or on the day of the latest line where the clock is behind it."""
        today = now().date().isoformat()
        return self._rounds.get(user, DailyRounds()) if self._day >= today else DailyRounds()

    def calls(self, run: str, step: str, how: str, transforms: tuple[str, ...]) -> DailyRounds:
        """Return the calls of one step of a run for which data were read, put in this way; an empty `how` fits all."""
        return self._calls.get((run, step, how, as_logged(transforms)), DailyRounds())

    def _take(self, entry: Entry) -> None:
        """Take in one line; `ValueError` refuses the log."""
        fields = entry.fields
        _check(fields)
        if fields["budget_left"] is not None:
            self.last_budget = float(fields["budget_left"]), fields["when"]
        day = fields["when"][:10]
        if day > self._day:  # a clock that was set back does not lift a limit
            self._day, self._rounds = day, {}
        if fields["ran"]:
            call = fields["run"], fields["call"], fields["stage"]
            self._rounds.setdefault(fields["who"], DailyRounds()).add(*call)
            for how in {"", call_kind(fields["how"], fields["stage"])}:
                kind = fields["run"], fields["step"], how, tuple(fields["transforms"])
                self._calls.setdefault(kind, DailyRounds()).add(*call)

    def _sentence(self, what: str) -> str:
        return f"this site's audit log {what}, and nothing leaves it unlogged"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnwritableError as error:
            raise DiskError(self._sentence(str(error))) from None
        except AppendFileError as error:
            raise AuditLogError(self._sentence(str(error))) from None


def call_kind(how: str, stage: str) -> str:
    """Return how a call is put: as it says, as a part of a secure sum, or empty where it is done again without a reply.

    >>> call_kind("ask", ""), call_kind("sum", "offer"), call_kind("sum", "redo")
    ('ask', 'secure sum', '')
    """
    return "" if stage == "redo" else SECURE if stage else how


def as_logged(transforms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of transforms as a line has them: of more than 20 all but the first as a digest.

    Calls are counted by them, so that other transforms are other lines.

    >>> as_logged(("a", "b"))
    ('a', 'b')
    """
    first = tuple(id[:200] for id in transforms[:_MOST_TRANSFORMS])
    if len(transforms) <= _MOST_TRANSFORMS:
        return first
    digest = blake2b("\0".join(transforms).encode(), digest_size=8).hexdigest()
    return (*first[:-1], f"{len(transforms) - _MOST_TRANSFORMS + 1} more, {digest}")


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
    """Raise a `ValueError` unless these are the fields of an audit log's line."""
    for key, kind in _KINDS.items():
        value = fields.get(key, _KINDS)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"its {key!r} is missing or of the wrong type")
    datetime.fromisoformat(fields["when"])


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
