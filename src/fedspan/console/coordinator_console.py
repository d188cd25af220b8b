"""The process of a coordinator's page: ``python -m fedspan.console.coordinator_console KIT HOST PORT``."""

from __future__ import annotations

import sys
from pathlib import Path

from fedspan.console.coordinator_pages import CoordinatorPages
from fedspan.console.owner_console import run_server
from fedspan.console.page_server import PageServer, token_in


def coordinator_server(kit: Path, host: str = "127.0.0.1", port: int = 0) -> PageServer:
    """Return the server of a coordinator's page; its tokens are in the kit."""
    pages = CoordinatorPages(kit).pages()
    return PageServer(pages, token_in(kit / "console.token"), token_in(kit / "metrics.token"), host, port)


def main() -> int:
    """Serve the page until the coordinator's own process ends."""
    kit, host, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    return run_server("the coordinator's page", kit, lambda: coordinator_server(kit, host, port))


if __name__ == "__main__":
    sys.exit(main())
