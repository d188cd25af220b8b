"""The process of an owner's page: ``python -m fedspan.console.owner_console CONFIG KIT HOST PORT``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from fedspan.console.owner_pages import OwnerPages
from fedspan.console.page_server import PageServer, token_in
from fedspan.console.site_view import SiteView
from fedspan.engines.nvflare.setup.console_events import report
from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent
from fedspan.errors import FedspanError


def owner_server(config: Path, kit: Path, host: str = "127.0.0.1", port: int = 0) -> PageServer:
    """Return the server of a site's pages; its tokens are in the kit."""
    pages = OwnerPages(SiteView(config, kit)).pages()
    return PageServer(pages, token_in(kit / "console.token"), token_in(kit / "metrics.token"), host, port)


def main() -> int:
    """Serve the page until the site's own process ends."""
    config, kit, host, port = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    return run_server("the owner's page", kit, lambda: owner_server(config, kit, host, port))


def run_server(name: str, kit: Path, make: Callable[[], PageServer]) -> int:
    """Serve a page until the process that started this one ends."""
    die_with_parent()
    try:
        server = make()
    except (FedspanError, OSError) as error:
        report(f"{name} is not served: {error}")
        return 2
    report(f"{name}, this once: {server.link()}")
    report(f"later: {server.address} with the token in {kit / 'console.token'}")
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
