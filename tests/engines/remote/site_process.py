"""A site's process, for a test to kill: prints its port, and answers what comes there.

Arguments: name, folder (with ``certificate``, ``key``, ``root`` in it).
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Listener
from pathlib import Path

from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.engines.remote.site.site_worker import SiteWorker

from .runs import sites

if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    certificate, key, root = ((folder / file).read_bytes() for file in ("certificate", "key", "root"))
    site = next(site for site in sites() if site.name == name)
    worker = SiteWorker(site, folder / "disk", Identity(certificate, key), Authority(root, "clinics"))
    with Listener(("127.0.0.1", 0)) as listener:
        print(listener.address[1], flush=True)
        while True:
            with listener.accept() as connection:
                connection.send_bytes(worker.answer(connection.recv_bytes()))
