"""A run: one number, one seed, one call counter, one journal and one record, shared by all views of a federation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedspan.errors import InputError
from fedspan.federation.calls.call import Engine
from fedspan.federation.journal import Journal
from fedspan.federation.outcomes import Ending, EndingKind, Failure
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import CallRecord, Metrics, RunRecord, json_line
from fedspan.federation.site.site import generator
from fedspan.federation.versions import versions
from fedspan.wire import canonical


class Observer:
    """Receives what a run does while it runs: the base of progress bars and trackers."""

    def began(self, record: RunRecord) -> None:
        """Note that a run begins."""

    def round(self, number: int, of: int) -> None:
        """Note that round `number` (from 0) of at most `of` begins."""

    def called(self, call: CallRecord) -> None:
        """Note that a call is done."""

    def logged(self, metrics: Metrics) -> None:
        """Note what a protocol logs."""

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Note that the run waits for offline sites."""

    def ended(self, record: RunRecord) -> None:
        """Note that the run is over."""


class Run:
    """What the calls of one run share; with a `folder` for journal and record the run can be resumed."""

    def __init__(
        self, engine: Engine, record: RunRecord, folder: Path | None = None, observers: tuple[Observer, ...] = ()
    ) -> None:
        self.engine = engine
        self.record = record
        self.observers = observers
        self.began = time.monotonic()
        self.accepted: dict[str, int] = {}  # by site: the last call whose reply was accepted
        self.calls = 0
        self.round: int | None = None
        self.journal: Journal | None = None
        self._stop = False
        self._lines: TextIO | None = None
        head = None if folder is None else self._open_files(folder)
        self.id = engine.begin(f"{record.what}#{record.number}", head)
        self.watched = folder is not None or bool(observers)  # calls are reported to a file or to observers
        if self.watched:
            self.keep_versions()  # an existing journal decides the number of threads
        self._notify("began", record)

    @cached_property
    def rng(self) -> np.random.Generator:
        """The coordinator's generator, made when a protocol first needs one."""
        return generator(self.record.seed, "coordinator")

    def rounds(self, n: int) -> Iterator[int]:
        """Count rounds from 0 to at most `n`, until `stop` is called."""
        if n < 0:
            raise InputError(f"rounds({n}): the number of rounds cannot be negative")
        self._stop = False
        try:
            for number in range(n):
                self.round = number
                self._notify("round", number, n)
                yield number
                if self._stop:
                    return
            self.record.stopped = Ending(EndingKind.ROUNDS_USED_UP, f"all {n} rounds done")
        finally:  # also where the protocol leaves the loop by itself
            self.round = None

    def stop(self, reason: str, kind: EndingKind) -> None:
        """State why the run stops; the loop over `rounds` ends with its current round."""
        if not str(reason):
            raise InputError("stop(reason): state in words why the run stops")
        self._stop = True
        self.record.stopped = Ending(kind, str(reason))

    def log(self, values: Mapping[str, object]) -> None:
        """Keep named numbers and words of the protocol in the record."""
        metrics = Metrics(self.calls - 1, self.round, dict(canonical(values, "log")))
        for name, value in metrics.values.items():
            if isinstance(value, np.ndarray | complex):
                raise InputError(f"log({name}=...) takes a number or text, not a {type(value).__name__}")
        self.record.metrics.append(metrics)
        self._write("metrics", vars(metrics))
        self._notify("logged", metrics)

    def called(self, call: CallRecord) -> None:
        """Report a call to the record's file and to observers."""
        if self._lines is not None:
            self._write("call", call.values(self.record.sites))
        self._notify("called", call)

    def rejected(self, failures: Mapping[str, Failure]) -> None:
        """Keep in the record that the protocol itself rejected replies of the last call."""
        number = self.record.calls[-1].number
        self.record.reject(number, failures)
        self._write("rejected", {"number": number, "failed": {site: why.values() for site, why in failures.items()}})

    def spent(self, privacy: PrivacySpent, again: bool) -> None:
        """Keep in the record what the run spends of the sites' privacy, in place of earlier reports if `again`."""
        before = self.record.privacy
        self.record.privacy = privacy if again or before is None else before + privacy
        self._write("privacy", self.record.privacy.values())

    def keep_versions(self) -> None:
        """Keep in the record which extras were loaded, and what else has changed, since it began."""
        found = versions()
        if found != self.record.versions:
            self.record.versions = found
            self._write("versions", found)

    def wait(self, sites: tuple[str, ...], deadline: float) -> bool:
        """Wait for offline sites until the run is `deadline` seconds old; return whether one may be back."""
        left = self.began + deadline - time.monotonic()
        if left <= 0:
            return False
        self._notify("waiting", sites)
        return self.engine.wait(sites, left)

    def end(self, error: BaseException | None = None) -> None:
        """Close the run: with its result, or with the error that ended it."""
        record = self.record
        try:
            if self.journal is not None and error is None:
                self.journal.finish(record.stopped or Ending(EndingKind.FINISHED))
        except Exception as failed:
            error = failed
            raise
        finally:
            if isinstance(error, KeyboardInterrupt):
                record.stopped = Ending(EndingKind.INTERRUPTED, "interrupted by the user")
            elif error is not None:
                record.stopped = Ending(EndingKind.FAILED, f"failed: {type(error).__name__}: {error}")
            record.stopped = record.stopped or Ending(EndingKind.FINISHED)
            self.close(resumable=error is not None)
        self._notify("ended", record)

    def close(self, *, resumable: bool) -> None:
        """Release files and the sites' states; a run of protocols on the federation itself ends with this."""
        self.record.stopped = self.record.stopped or Ending(EndingKind.CLOSED)
        self.keep_versions()
        self._write("ended", self.record.stopped.values())
        try:
            self.engine.end(self.id, self.record.sites, resumable and self.journal is not None)
        finally:  # also where that is interrupted: the run can be resumed in this process
            if self.journal is not None:
                self.journal.close()
            if self._lines is not None:
                self._lines.close()
                self._lines = None

    def _open_files(self, folder: Path) -> dict[str, Any]:
        """Open or resume the journal, begin the record's file, and return the journal's head."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"run_dir={str(folder.parent)!r} cannot be used: {error.strerror}") from None
        record = self.record
        record.versions = versions()
        head = {"format": 1, "what": record.what, "settings": record.settings, "run": record.number}
        head |= {"seed": record.seed, **self.engine.describe()}
        self.journal = Journal(folder / "journal", head, advice=self.engine.advice)
        descriptor = os.open(folder / "record.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._lines = os.fdopen(descriptor, "w", encoding="utf-8")
        for line in record.lines():
            self._lines.write(line + "\n")
        return self.journal.head

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._lines is not None:
            self._lines.write(json_line(kind, values) + "\n")
            self._lines.flush()

    def _notify(self, event: str, *what: object) -> None:
        for observer in self.observers:
            getattr(observer, event)(*what)
