"""Console events: one line for each event that the owner of a server or site wants to know."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from fedspan.checks import printable

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


class NewEvents:
    """Prints a line unless it was also the last one, less than `again` seconds ago; `to` may send it elsewhere."""

    def __init__(self, again: float = 60.0, to: Callable[[str], None] | None = None) -> None:
        self._again, self._to = again, to
        self.last, self._when = "", 0.0

    def report(self, line: str) -> None:
        """Print a line, if it is new."""
        now = time.monotonic()
        if line != self.last or now - self._when > self._again:
            self.last, self._when = line, now
            (self._to or report)(line)


def report(line: str) -> None:
    """Print one line with the time, at once; as JSON where the environment requests it."""
    text = f"{time.strftime('%H:%M:%S')} {printable(' '.join(line.split()))}"  # names and reasons come from others
    if os.environ.get(FORM) == "json":
        text = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": line})
    print(text, file=sys.stdout, flush=True)
