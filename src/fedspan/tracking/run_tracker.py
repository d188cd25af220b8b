"""The base of trackers: numbers of a run by name and step, sent to a service that may fail without failing the run."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from fedspan.federation import CallRecord, Metrics, Observer, RunRecord


class RunTracker(Observer, ABC):
    """Sends metrics, bytes and failures of each run, with the number of the call as the step.

    No row, reply or message is sent: only what the record of the run has. Where the service fails, a warning states it
    once, and the run continues.
    """

    def __init__(self) -> None:
        self._up = self._down = self._failed = 0
        self._record: RunRecord | None = None
        self._broken = False

    def began(self, record: RunRecord) -> None:
        """Begin a run of the tracker."""
        self._up = self._down = self._failed = 0
        self._record, self._broken = record, False
        self.begin(record)

    def called(self, call: CallRecord) -> None:
        """Send bytes, seconds and failures of a call."""
        self._up += sum(call.bytes_up.values())
        self._down += sum(call.bytes_down.values())
        self._failed += len(call.failed)
        found = {"bytes_up": self._up, "bytes_down": self._down, "failed_replies": self._failed}
        self._try(lambda: self.send({**found, "call_seconds": call.seconds}, call.number))

    def logged(self, metrics: Metrics) -> None:
        """Send the numbers that the protocol logs."""
        numbers = numbers_of(metrics.values)
        if numbers:
            self._try(lambda: self.send(numbers, max(0, metrics.call)))

    def ended(self, record: RunRecord) -> None:
        """End the tracker's run."""
        self._try(lambda: self.end(record))

    def _try(self, action: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            action()
        except Exception as error:  # of a service, a full disk or a network
            self._broken = True
            what = type(self).__name__
            warnings.warn(f"{what} failed, and the run continues without it: {error}", stacklevel=2)

    @abstractmethod
    def begin(self, record: RunRecord) -> None:
        """Begin a run."""

    @abstractmethod
    def send(self, numbers: Mapping[str, float], step: int) -> None:
        """Send some numbers."""

    @abstractmethod
    def end(self, record: RunRecord) -> None:
        """End the run."""


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among some values.

    Examples
    --------
    >>> numbers_of({"loss": 0.5, "solver": "covariance", "bad": float("nan")})
    {'loss': 0.5}
    """
    found = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def settings_of(record: RunRecord) -> dict[str, str]:
    """Return the settings of a run as short texts, and what decides its result besides."""
    found = {name: str(value)[:400] for name, value in record.settings.items() if value is not None}
    return {**found, "seed": str(record.seed), "sites": str(len(record.sites))}
