"""``fedspan site start``: the site in this process and, with ``--console``, its owner's page in one beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fedspan.console.page_server import address_of
from fedspan.engines.nvflare.setup.parent_death_watch import child_environment
from fedspan.engines.nvflare.setup.processes import start_site

#: The port of the owner's page, where none is named.
PORT = "8765"


def start(path: Path, config: Path, console: str | None) -> int:
    """Start the page, if it is wanted, and become the site."""
    again: list[str] = []
    if console is not None:
        host, port = address_of(console)
        again = ["--console", console]
        module = "fedspan.console.owner_console"
        command = [sys.executable, "-m", module, str(config.resolve()), str(path.resolve()), host, str(port)]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, env=child_environment())
    return start_site(path, config, again)
