"""``fedspan site start``: the site in this process and, with ``--console``, its owner's page in one beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fedspan.console.page_server import address_of
from fedspan.engines.nvflare.setup.console_events import FORM
from fedspan.engines.nvflare.setup.parent_death_watch import child_environment
from fedspan.engines.nvflare.setup.processes import start_site


def start(path: Path, config: Path, console: str | None, json_lines: bool) -> int:
    """Start the page, if it is wanted, and become the site."""
    again = ["--json"] if json_lines else []
    if json_lines:
        os.environ[FORM] = "json"
    if console is not None:
        again += ["--console", console]
        serve("fedspan.console.owner_console", console, config.resolve(), path.resolve())
    return start_site(path, config, again)


def serve(module: str, address: str, *paths: Path) -> None:
    """Start the process of a page, which ends with this one."""
    host, port = address_of(address)
    command = [sys.executable, "-m", module, *map(str, paths), host, str(port)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, env=child_environment())
