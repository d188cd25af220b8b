"""One line on the screen for each event that a server's or site's owner wants to know."""

from __future__ import annotations

import logging
import re
import sys
import time

#: What NVIDIA FLARE writes into its log, and what is said about it. The rest stays in the log file.
_EVENTS = (
    (re.compile(r"Client: New client (?P<name>[\w-]+)@(?P<address>\S+) joined"), "{name} joined from {address}"),
    (re.compile(r"Re-activate the client: (?P<name>[\w-]+)"), "{name} is back"),
    (re.compile(r"Remove the dead Client\. Name: (?P<name>[\w-]+)"), "{name} went silent"),
    (re.compile(r"Successfully registered client:(?P<name>[\w-]+)"), "{name} joined the federation"),
    (re.compile(r"Launch the job in process ID: (?P<process>\d+)"), "a run began (process {process})"),
    (re.compile(r"registration rejected: (?P<why>.+)"), "the coordinator does not let this site in: {why}"),
    (re.compile(r"Server started"), "the coordinator is up"),
    (re.compile(r"No connection to the server|Server is not alive|Lost connection"), "the coordinator is away"),
)


class ScreenHandler(logging.Handler):
    """Prints known events and errors, one line each, with the time."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print what `record` says, if it is an event."""
        line = event_of(record.getMessage(), record.levelno)
        if line is not None:
            say(line)


def event_of(message: str, level: int) -> str | None:
    """Return the event that a log message tells of, if any.

    >>> event_of("Remove the dead Client. Name: north.  Total clients: 2", logging.INFO)
    'north went silent'
    """
    for pattern, words in _EVENTS:
        found = pattern.search(message)
        if found:
            return words.format(**found.groupdict())
    return None if level < logging.CRITICAL else message.splitlines()[0]


class News:
    """Says a line when it is news: not what it said last, unless that is long ago."""

    def __init__(self, again: float = 60.0) -> None:
        self._again = again
        self._last, self._when = "", 0.0

    def say(self, line: str) -> None:
        """Print a line, if it is news."""
        now = time.monotonic()
        if line != self._last or now - self._when > self._again:
            self._last, self._when = line, now
            say(line)


def say(line: str) -> None:
    """Print one line with the time, at once."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stdout, flush=True)
