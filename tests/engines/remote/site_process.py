"""A site's process, for a test to kill: answers what comes over a socket.

Arguments: name, folder (with ``certificate``, ``key``, ``root`` in it), socket.
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
    with Listener(sys.argv[3], "AF_UNIX") as listener:
        print("ready", flush=True)
        while True:
            with listener.accept() as connection:
                connection.send_bytes(worker.answer(connection.recv_bytes()))
