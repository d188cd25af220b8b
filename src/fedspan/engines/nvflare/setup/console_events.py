"""Console events: one line for each event that the owner of a server or site wants to know."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from fedspan.engines.nvflare.setup.hardening import SILENT_AFTER

#: The environment variable that decides how events are printed: ``json``, or as text.
FORM = "FEDSPAN_LOG"
#: Before the reason why the coordinator does not admit a participant: trying again does not help.
REFUSED = "not admitted: "


class ConsoleHandler(logging.Handler):
    """Prints critical errors of NVIDIA FLARE, one line each; other messages stay in the log file."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the first line of a record."""
        report(record.getMessage().partition("\n")[0])


class SiteEvents:
    """Reports which of the federation's `sites` join, fall silent and come back, by what the server hears of them."""

    def __init__(self, sites: Callable[[], Collection[str]]) -> None:
        self._sites = sites
        self._heard: dict[str, float] = {}
        self._silent: set[str] = set()
        self._lock = threading.Lock()

    def joined(self, name: str) -> None:
        """Report a site that has registered. Users register, too, and are not reported."""
        if name in self._sites():
            with self._lock:
                self._heard[name] = time.monotonic()
                self._silent.discard(name)
            report(f"{name} joined")

    def heard(self, name: str) -> None:
        """Take a site's heartbeat."""
        if name not in self._sites():  # a user, or a site that was removed
            return
        with self._lock:
            back = name in self._silent
            self._silent.discard(name)
            self._heard[name] = time.monotonic()
        if back:
            report(f"{name} is back")

    def check(self) -> None:
        """Report the sites that have fallen silent."""
        with self._lock:
            limit = time.monotonic() - SILENT_AFTER
            silent = sorted(name for name, when in self._heard.items() if when < limit and name not in self._silent)
            self._silent |= set(silent)
        for name in silent:
            report(f"{name} is silent")

    def online(self) -> list[str]:
        """Return the sites that sent a message recently."""
        with self._lock:
            return sorted(set(self._heard) - self._silent)

    def watch(self) -> None:
        """Check which sites are silent, at regular intervals."""
        while True:
            time.sleep(1.0)
            self.check()


class NewEvents:
    """Prints a line unless it was also the last one, less than `again` seconds ago."""

    def __init__(self, again: float = 60.0) -> None:
        self._again = again
        self.last, self._when = "", 0.0

    def report(self, line: str) -> None:
        """Print a line, if it is new."""
        now = time.monotonic()
        if line != self.last or now - self._when > self._again:
            self.last, self._when = line, now
            report(line)


def report(line: str) -> None:
    """Print one line with the time, at once; as JSON where the environment requests it."""
    text = f"{time.strftime('%H:%M:%S')} {line}"
    if os.environ.get(FORM) == "json":
        text = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": line})
    print(text, file=sys.stdout, flush=True)
