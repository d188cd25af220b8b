"""The process of an owner's page: ``python -m fedspan.console.owner_console CONFIG KIT HOST PORT``."""

from __future__ import annotations

import sys
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
    die_with_parent()
    config, kit, host, port = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    try:
        server = owner_server(config, kit, host, port)
    except FedspanError as error:
        report(f"the owner's page is not served: {error}")
        return 2
    report(f"the owner's page, this once: {server.link()}")
    report(f"later: {server.address} with the token in {kit / 'console.token'}")
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
