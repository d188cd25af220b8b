"""Console events: one line for each event that the owner of a server or site wants to know."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from datetime import UTC, datetime
from typing import ClassVar

#: The environment variable that decides how events are printed: ``json``, or as text.
FORM = "FEDSPAN_LOG"
#: Before the reason why the coordinator does not admit a participant: trying again does not help.
REFUSED = "not admitted: "

#: Messages in NVIDIA FLARE's log, and the event that each stands for. Other messages stay in the log file.
_EVENTS = (
    (re.compile(r"Client: New client (?P<name>[\w-]+)@(?P<address>\S+) joined"), "{name} joined from {address}"),
    (re.compile(r"Re-activate the client: (?P<name>[\w-]+)"), "{name} is back"),
    (re.compile(r"Remove the dead Client\. Name: (?P<name>[\w-]+)"), "{name} is silent"),
    (re.compile(r"Successfully registered client:(?P<name>[\w-]+)"), "{name} joined the federation"),
    (re.compile(r"registration rejected: (?P<why>.+)"), "the coordinator refuses this site: {why}"),
    (re.compile(r"Server started"), "the coordinator is up"),
    (re.compile(r"No connection to the server|Server is not alive|Lost connection"), "the coordinator is offline"),
)


class ConsoleHandler(logging.Handler):
    """Prints known events and critical errors, one line each, with the time.

    `refused` is set when the coordinator does not admit this process.
    """

    refused: ClassVar[bool] = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, if it is an event."""
        message = record.getMessage()
        ConsoleHandler.refused |= REFUSED in message
        line = event_of(message.replace(REFUSED, ""), record.levelno)
        if line is not None:
            report(line)


def event_of(message: str, level: int) -> str | None:
    """Return the event that a log message stands for, if any.

    >>> event_of("Remove the dead Client. Name: north.  Total clients: 2", logging.INFO)
    'north is silent'
    """
    for pattern, words in _EVENTS:
        found = pattern.search(message)
        if found:
            return words.format(**found.groupdict())
    return None if level < logging.CRITICAL else message.splitlines()[0]


class NewEvents:
    """Prints a line unless it was also the last one, less than `again` seconds ago."""

    def __init__(self, again: float = 60.0) -> None:
        self._again = again
        self._last, self._when = "", 0.0

    def report(self, line: str) -> None:
        """Print a line, if it is new."""
        now = time.monotonic()
        if line != self._last or now - self._when > self._again:
            self._last, self._when = line, now
            report(line)


def report(line: str) -> None:
    """Print one line with the time, at once; as JSON where the environment says so."""
    text = f"{time.strftime('%H:%M:%S')} {line}"
    if os.environ.get(FORM) == "json":
        text = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": line})
    print(text, file=sys.stdout, flush=True)
