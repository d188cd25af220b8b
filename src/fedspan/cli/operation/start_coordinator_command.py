"""``fedspan coordinator start``: the coordinator in this process and, with ``--console``, its page in one beside it."""

from __future__ import annotations

import os
from pathlib import Path

from fedspan.cli.site.start_command import serve
from fedspan.engines.nvflare.setup.console_events import FORM
from fedspan.engines.nvflare.setup.processes import start_coordinator


def start(path: Path, console: str | None, json_lines: bool) -> int:
    """Start the page, if it is wanted, and become the coordinator."""
    if json_lines:
        os.environ[FORM] = "json"
    if console is not None:
        serve("fedspan.console.coordinator_console", console, path.resolve())
    return start_coordinator(path)
