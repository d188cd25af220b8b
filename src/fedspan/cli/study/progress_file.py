"""The progress of a detached study, in a file beside it: the run, its round, calls, time left, failures by kind."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from fedspan.durable.whole_file import write_whole
from fedspan.federation import CallRecord, Observer, RunRecord

#: Seconds between two versions of the file.
EVERY = 1.0


class ProgressFile(Observer):
    """Writes what a study does, at most once a second. There are no data in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = ""
        self._runs = 0
        self._round: tuple[int, int] | None = None
        self._loop_began = 0.0
        self._calls = 0
        self._failures: Counter[str] = Counter()
        self._waiting: tuple[str, ...] = ()
        self._next = 0.0

    def began(self, record: RunRecord) -> None:
        """Note a run."""
        self._run, self._round, self._runs = record.what, None, self._runs + 1
        self._write(at_once=True)

    def round(self, number: int, of: int) -> None:
        """Note a round."""
        if number == 0:
            self._loop_began = time.monotonic()
        self._round = number, of
        self._write()

    def called(self, call: CallRecord) -> None:
        """Note a call, and the failures of sites."""
        self._calls += 1
        self._failures.update(failure.kind.value for failure in call.failed.values())
        self._waiting = ()
        self._write()

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Note for which sites the run waits."""
        self._waiting = sites
        self._write(at_once=True)

    def ended(self, record: RunRecord) -> None:
        """Note that a run is over."""
        self._write(at_once=True)

    def _write(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not at_once:
            return
        self._next = now + EVERY
        number, of = self._round or (0, 0)
        left = (now - self._loop_began) / number * (of - number) if number else None
        state = {
            "run": self._run,
            "runs": self._runs,
            "round": number + 1 if of else 0,
            "rounds": of,
            "calls": self._calls,
            "seconds_left": left,
            "failures": dict(self._failures),
            "waiting": list(self._waiting)[:20],
        }
        with suppress(OSError):  # a full disk does not end the study
            write_whole(self._path, json.dumps(state).encode())
