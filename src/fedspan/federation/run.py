"""A run: one number, one seed, one call counter, one journal and one record, shared by all views of a federation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedspan.errors import InputError
from fedspan.federation.calls.call import Engine
from fedspan.federation.journal import Journal
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import INTERRUPTED, CallRecord, Metrics, RunRecord, json_line
from fedspan.federation.site.site import generator
from fedspan.federation.site.state import NO_CHANGES
from fedspan.federation.versions import versions
from fedspan.secure_sum.sum_set_differences import SummedSets
from fedspan.wire import canonical


class Observer:
    """Is told what a run does, as it does it: progress bars are made of this."""

    def began(self, record: RunRecord) -> None:
        """Take note that a run begins."""

    def round(self, number: int, of: int) -> None:
        """Take note that round `number` (from 0) of at most `of` begins."""

    def called(self, call: CallRecord) -> None:
        """Take note that a call is done."""

    def logged(self, metrics: Metrics) -> None:
        """Take note of what a protocol logs."""

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Take note that the run waits for sites that are away."""

    def ended(self, record: RunRecord) -> None:
        """Take note that the run is over."""


class Run:
    """What the calls of one run share.

    Parameters
    ----------
    folder : path, optional
        Where journal and record go; without it the run is not durable.
    """

    def __init__(
        self, engine: Engine, record: RunRecord, folder: Path | None = None, observers: tuple[Observer, ...] = ()
    ) -> None:
        self.engine = engine
        self.record = record
        self.observers = observers
        self.began = time.monotonic()
        self.rng: np.random.Generator = generator(record.seed, "coordinator")
        self.accepted: dict[str, int] = {}  # by site: the last call whose reply was taken
        self.summed = SummedSets()
        self.round: int | None = None
        self.journal: Journal | None = None
        self._calls = 0
        self._stop = ""
        self._lines: TextIO | None = None
        head = None if folder is None else self._open_files(folder)
        self.id = engine.begin(f"{record.what}#{record.number}", head)
        self._keep_versions()  # a journal decides the number of threads
        for observer in observers:
            observer.began(record)

    def next_number(self) -> int:
        """Count a call."""
        self._calls += 1
        return self._calls - 1

    def rounds(self, n: int) -> Iterator[int]:
        """Count rounds from 0 to at most `n`, until somebody calls `stop`."""
        if n < 0:
            raise InputError(f"rounds({n}): the number of rounds cannot be negative")
        self._stop = ""
        try:
            for number in range(n):
                self.round = number
                for observer in self.observers:
                    observer.round(number, n)
                yield number
                if self._stop:
                    return
            self.record.stopped = f"all {n} rounds done"
        finally:  # also where the protocol leaves the loop by itself
            self.round = None

    def stop(self, reason: str) -> None:
        """Say why the run stops; the loop over `rounds` ends with its current turn."""
        if not str(reason):
            raise InputError("stop(reason): say in words why the run stops")
        self._stop = self.record.stopped = str(reason)

    def log(self, values: Mapping[str, object]) -> None:
        """Keep numbers and words of the protocol's own in the record."""
        metrics = Metrics(self._calls - 1, self.round, dict(canonical(values, "log")))
        for name, value in metrics.values.items():
            if isinstance(value, np.ndarray | complex):
                raise InputError(f"log({name}=...) takes a number or text, not a {type(value).__name__}")
        self.record.metrics.append(metrics)
        self._write("metrics", vars(metrics))
        for observer in self.observers:
            observer.logged(metrics)

    def called(self, call: CallRecord) -> None:
        """Keep a call in the record."""
        self.record.calls.append(call)
        self._write("call", vars(call))
        for observer in self.observers:
            observer.called(call)

    def refused(self, reasons: Mapping[str, str]) -> None:
        """Put into the record that the protocol itself refused replies of the last call."""
        self.record.refuse(self.record.calls[-1].number, reasons)
        self._write("refused", {"number": self.record.calls[-1].number, "failed": dict(reasons)})

    def spent(self, privacy: PrivacySpent, again: bool) -> None:
        """Put into the record what the run spends of the sites' privacy: more of it, or the same told `again`."""
        before = self.record.privacy
        self.record.privacy = privacy if again or before is None else before + privacy
        self._write("privacy", self.record.privacy.values())

    def wait(self, sites: tuple[str, ...], deadline: float) -> bool:
        """Wait for sites that are away, until the run is `deadline` seconds old; say whether one may be there again."""
        left = self.began + deadline - time.monotonic()
        for observer in self.observers if left > 0 else ():
            observer.waiting(sites)
        return left > 0 and self.engine.wait(sites, left)

    def replay_state(self, number: int, changes: Mapping[str, Any], answered: tuple[str, ...]) -> None:
        """Bring the sites' states to where call `number` of the journal left them."""
        for site in answered:
            self.engine.restore(self.id, site, number, changes.get(site, NO_CHANGES))

    def end(self, error: BaseException | None = None) -> None:
        """Close the run: with its result, or with the error that ended it."""
        try:
            self._keep_versions()
            if isinstance(error, KeyboardInterrupt):
                self.record.stopped = INTERRUPTED
            elif error is not None:
                self.record.stopped = f"failed: {type(error).__name__}: {error}"
            elif not self.record.stopped:
                self.record.stopped = "finished"
            if self.journal is not None and error is None:
                self.journal.finish(self.record.stopped)
            self._write("stopped", {"why": self.record.stopped})
        finally:
            self.close(resumable=error is not None)
        for observer in self.observers:
            observer.ended(self.record)

    def leave(self) -> None:
        """Close a run that has no end of its own, because protocols were called on the federation itself."""
        self._keep_versions()
        self.record.stopped = self.record.stopped or "closed"
        self._write("stopped", {"why": self.record.stopped})
        self.close(resumable=True)

    def close(self, *, resumable: bool) -> None:
        """Let go of files and of the sites' states; without a journal nothing is `resumable`."""
        self.engine.end(self.id, self.record.sites, resumable and self.journal is not None)
        if self.journal is not None:
            self.journal.close()
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def _keep_versions(self) -> None:
        """Put into the record the extras that were loaded, and what else has changed, since it was begun."""
        found = versions()
        if found != self.record.versions:
            self.record.versions = found
            self._write("versions", found)

    def _open_files(self, folder: Path) -> dict[str, Any]:
        """Open or resume the journal, begin the record's file anew, and return the journal's head."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"run_dir={str(folder.parent)!r} cannot be used: {error.strerror}") from None
        record = self.record
        head = {
            "format": 1,
            "what": record.what,
            "settings": record.settings,
            "run": record.number,
            "seed": record.seed,
            **self.engine.describe(),
        }
        self.journal = Journal(folder / "journal", head, advice=self.engine.advice)
        descriptor = os.open(folder / "record.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._lines = os.fdopen(descriptor, "w", encoding="utf-8")
        for line in record.lines():
            self._lines.write(line + "\n")
        return self.journal.head

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._lines is not None:
            self._lines.write(json_line(kind, values) + "\n")
            self._lines.flush()
