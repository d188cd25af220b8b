"""A site's part in a relay: hands requests to the site's worker, which decides, and brings back what it says."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent, no_tensors, quiet_logs
from fedspan.engines.nvflare.setup.payload_packing import pack, unpack
from fedspan.engines.nvflare.site.socket_frames import read_frame, socket_path, write_frame

#: Seconds to wait for the worker when a relay begins. In the middle of one it is asked again by whoever asked.
PATIENCE = 20.0


class SiteApp:
    """Runs as a job at the site, one process for each relay, beside the one worker that all of them use."""

    def __init__(self) -> None:
        die_with_parent()
        no_tensors()
        self._path = ""
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []

    @collab.init  # type: ignore[untyped-decorator]
    def setup(self) -> None:
        """Find the site's worker: the kit's folder is this process's workspace."""
        quiet_logs()
        self._path = socket_path(Path(collab.workspace.get_root_dir()))
        self._free.append(self._connect(PATIENCE))

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, request: Any) -> Any:
        """Answer one request, if the server brings it: other sites could call this too."""
        if collab.caller != "server":
            raise PermissionError("only the federation's server may call a site")
        return pack(self._ask_worker(unpack(request)))

    def _ask_worker(self, request: bytes) -> bytes:
        with self._lock:
            link = self._free.pop() if self._free else None
        if link is not None and _broken(link):
            link.close()
            link = None
        link = link or self._connect(0.0)
        try:
            write_frame(link, request)
            answer = read_frame(link)
        except OSError:
            answer = None
        if answer is None:
            link.close()
            raise ConnectionError("the site's worker died over this request; it is being started anew")
        with self._lock:
            self._free.append(link)
        return answer

    def _connect(self, patience: float) -> socket.socket:
        until = time.monotonic() + patience
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.connect(self._path)
                return link
            except OSError:
                link.close()
                if time.monotonic() > until:
                    raise ConnectionError("the site's worker is being started anew") from None
                time.sleep(0.1)


def _broken(link: socket.socket) -> bool:
    """Tell whether the worker at the other end is gone: nothing is ever sent without being asked for."""
    link.setblocking(False)
    try:
        return link.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        link.setblocking(True)
