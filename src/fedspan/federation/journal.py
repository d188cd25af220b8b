"""The journal: what the coordinator received, call by call, from which a killed run resumes.

Its first entry is the head (what runs, on which data), then comes one entry per call, last how the run ended. An entry
is written before the protocol sees its replies. Mode 0600: replies can amount to data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fedspan.durable.append_file import AppendFile, AppendFileError, Entry
from fedspan.errors import InputError, JournalError, MessageError
from fedspan.federation.calls.call import Collected
from fedspan.federation.message_sizes import read, written
from fedspan.federation.outcomes import Failure
from fedspan.federation.site.state import Changes
from fedspan.wire import decode, encode, encoded

_MOST_THREADS = 2**16


@dataclass(frozen=True)
class JournalEntry:
    """One call as the journal keeps it. Without a `quorum` no reply was accepted."""

    number: int
    digest: str
    collected: Collected
    seconds: float
    quorum: bool = True


class Journal:
    """The journal of one run, open for replaying recorded calls and for appending new ones.

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
        self._entries: list[Entry] = []
        # A journal that is opened again in the same process passes to the one that opens it, as between processes.
        before = _open_here.get(path.resolve())
        if before is not None:
            before.close()
        _open_here[path.resolve()] = self
        with _errors(path):
            self._file = AppendFile(path, accept=self._entries.append)
        try:
            if not self._entries:
                with _errors(path):
                    self._file.append({"head": head})
            self.head = _head(self._entries, path)
            _compare_heads(self.head, head, advice, path)
            self._sites = _sites(self.head)
        except BaseException:
            self._file.close()
            raise
        self._next = 1

    def replay(self, number: int, digest: str, step: str) -> JournalEntry | None:
        """Return the recorded entry of the next call, or ``None`` where the record ends.

        The call must be the recorded one: otherwise another protocol, or one with other parameters, runs on this file.
        """
        if self._next >= len(self._entries):
            return None
        entry = self._recorded()
        if entry is None:
            made = self._next - 1
            raise JournalError(f"{self.path} is of a finished run that made {made} calls, and this run makes more")
        if (entry.number, entry.digest) != (number, digest):
            raise JournalError(
                f"{self.path} does not fit: its call {entry.number} went to another step or had other recipients or "
                f"another payload than this run's call {number} of {step!r}; give this run a folder of its own"
            )
        if not entry.quorum and self._next == len(self._entries) - 1:
            last = self._entries.pop()  # the run stopped here because too few sites answered: request it again
            self._file.cut(last, self._entries[-1])
            return None
        self._next += 1
        return entry

    def append(self, entry: JournalEntry) -> None:
        """Write one call and hand it to the operating system before returning."""
        collected = entry.collected
        parts = [encoded(reply) for reply in collected.replies.values()]
        parts += [encode(changes.put) for changes in collected.changes.values()]
        everyone, answered = self._sites, collected.answered
        asked = tuple(collected.bytes_down)
        each = list(map(len, parts))
        fields = {
            "number": entry.number,
            "digest": entry.digest,
            "asked": None if asked == everyone else asked,
            "answered": None if answered == asked else answered,
            "failed": {site: failure.values() for site, failure in collected.failed.items()},
            "replies": None if tuple(collected.replies) == answered else list(collected.replies),
            "changes": {site: list(changes.deleted) for site, changes in collected.changes.items()},
            "sizes": each if len(set(each)) > 1 else [len(each), *each[:1]],
            "alike": len(set(each)) <= 1,
            "bytes_up": written(collected.bytes_up, answered),
            "bytes_down": written(collected.bytes_down, asked),
            "seconds": entry.seconds,
            "quorum": entry.quorum,
            "error": collected.error,
        }
        self._append(fields, parts)

    def finish(self, ending: str) -> None:
        """Write how the run ended, unless that is recorded already."""
        if self._next >= len(self._entries):
            self._append({"ended": ending})
        elif self._recorded() is not None:
            raise JournalError(f"{self.path} does not fit: this run has stopped, and recorded calls are left over")

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    def _append(self, fields: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
        self._check_open()
        with _errors(self.path):
            self._file.append(fields, parts)
        self._next = len(self._entries)

    def _recorded(self) -> JournalEntry | None:
        self._check_open()
        with _errors(self.path):
            return _parsed(self._entries[self._next], self._file, self._sites)

    def _check_open(self) -> None:
        if self._file.closed:
            raise JournalError(f"{self.path} was closed: another federation of this process continues its run")


_open_here: WeakValueDictionary[Path, Journal] = WeakValueDictionary()


def read_journal(path: Path) -> tuple[dict[str, Any], Iterator[JournalEntry]]:
    """Return a journal's head, and its calls one by one, without locking or changing the file.

    A last entry that was cut short is left out.
    """
    if not path.is_file():
        raise InputError(f"there is no journal {path}")
    entries: list[Entry] = []
    with _errors(path):
        file = AppendFile(path, make=False, read_only=True, accept=entries.append)

    def calls() -> Iterator[JournalEntry]:
        try:
            for entry in entries[1:]:
                with _errors(path):
                    parsed = _parsed(entry, file, _sites(_head(entries, path)))
                if parsed is not None:
                    yield parsed
        finally:
            file.close()

    return {"what": "", "settings": {}, "sites": {}, **_head(entries, path)}, calls()


def _head(entries: Sequence[Entry], path: Path) -> dict[str, Any]:
    head = entries[0].fields.get("head") if entries else None
    if not isinstance(head, dict):
        raise JournalError(f"{path} is not a journal")
    kinds = {"what": str, "settings": dict, "sites": dict, "rows": dict, "threads": int}
    rows, threads = head.get("rows", {}), head.get("threads", 1)
    if not (
        all(isinstance(head.get(name, kind()), kind) for name, kind in kinds.items())
        and all(type(count) is int for count in rows.values())
        and 0 < threads <= _MOST_THREADS
    ):
        raise JournalError(f"{path} is not a journal: its head has values of other types than fedspan writes")
    return head


def _sites(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all sites, which entries leave out."""
    return tuple(sorted(head.get("sites", ())))


def _parsed(entry: Entry, file: AppendFile, sites: tuple[str, ...]) -> JournalEntry | None:
    """Read the entry of a call, or return ``None`` for the one that ended the run."""
    fields = entry.fields
    if "ended" in fields:
        return None
    body, at, messages = file.body(entry), 0, []
    if fields["alike"] and not 0 <= fields["sizes"][0] <= len(body):  # before a list of that length is made
        raise AppendFileError("is damaged or was altered: it has more messages than bytes")
    asked = sites if fields["asked"] is None else tuple(fields["asked"])
    answered = asked if fields["answered"] is None else tuple(fields["answered"])
    each = fields["sizes"][1:] * fields["sizes"][0] if fields["alike"] else fields["sizes"]
    for size in each:
        messages.append(decode(body[at : at + size], max_bytes=size))
        at += size
    replies = dict(zip(answered if fields["replies"] is None else fields["replies"], messages, strict=False))
    put = messages[len(replies) :]
    changes = {
        site: Changes(values, tuple(deleted))
        for (site, deleted), values in zip(fields["changes"].items(), put, strict=True)
    }
    failed = {site: Failure.of(values) for site, values in fields["failed"].items()}
    if not (set(replies) <= {*answered, ""} and {*changes, *answered, *failed} <= set(asked)):
        raise AppendFileError("is damaged or was altered: a call has replies of sites that it did not request")
    up, down = read(fields["bytes_up"], answered), read(fields["bytes_down"], asked)
    collected = Collected(replies, fields["error"], answered, failed, changes, up, down)
    return JournalEntry(fields["number"], fields["digest"], collected, fields["seconds"], fields["quorum"])


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except AppendFileError as error:
        raise JournalError(f"{path} {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MessageError) as error:
        raise JournalError(f"{path} is damaged in one of its calls: {type(error).__name__}") from None


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
