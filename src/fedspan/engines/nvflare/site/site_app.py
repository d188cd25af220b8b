"""A site's part in a relay: it passes requests on to the site's worker, which decides, and returns the answers."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.setup.payload_packing import LONGEST, pack, socket_path, unpack

#: Seconds to wait for the worker when a relay begins. Later the coordinator repeats its request.
START_TIMEOUT = 20.0


class SiteApp:
    """Runs as a job at the site, one process for each relay, beside the one worker that all of them use."""

    def __init__(self) -> None:
        die_with_parent()
        no_tensors()
        self._path = ""
        self._lock = threading.Lock()
        self._free: list[Connection[bytes, bytes]] = []

    @collab.init  # type: ignore[untyped-decorator]
    def setup(self) -> None:
        """Find the site's worker: the kit's folder is this process's workspace."""
        quiet_logs()
        self._path = socket_path(Path(collab.workspace.get_root_dir()))
        self._free.append(self._connect(START_TIMEOUT))

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, request: Any) -> Any:
        """Answer a request of the server; other sites could call this too, and are refused."""
        if collab.caller != "server":
            raise PermissionError("only the federation's server may call a site")
        return pack(self._answer_of_worker(unpack(request)))

    def _answer_of_worker(self, request: bytes) -> bytes:
        with self._lock:
            link = self._free.pop() if self._free else None
        if link is not None and link.poll():  # a worker sends nothing without a request: this one has ended
            link.close()
            link = None
        link = link or self._connect(0.0)
        try:
            link.send_bytes(request)
            answer = link.recv_bytes(LONGEST)
        except (EOFError, OSError):
            link.close()
            raise ConnectionError("the site's worker died during this request; it is restarting") from None
        with self._lock:
            self._free.append(link)
        return answer

    def _connect(self, timeout: float) -> Connection[bytes, bytes]:
        until = time.monotonic() + timeout
        while True:
            try:
                return Client(self._path, "AF_UNIX")
            except OSError:
                if time.monotonic() > until:
                    raise ConnectionError("the site's worker is restarting") from None
                time.sleep(0.1)
