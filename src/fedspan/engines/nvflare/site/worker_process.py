"""The worker process: the one process of a site that reads its data and runs steps. All users share it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent
from fedspan.engines.nvflare.setup.payload_packing import read_frame, socket_path, write_frame
from fedspan.engines.nvflare.site.owned_worker import OwnedWorker
from fedspan.engines.nvflare.site.supervisor import BAD_CONFIG
from fedspan.errors import FedspanError


class WorkerServer:
    """Answers requests of the site's other processes, each connection in a thread."""

    def __init__(self, kit: Path, config: Path, notify: Callable[[str], None]) -> None:
        self.worker = OwnedWorker(kit, config, notify)
        self._lock = threading.Lock()
        self._links = 0
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = socket_path(kit)
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._listening.bind(path)
        os.chmod(path, 0o600)
        self._listening.listen(64)

    def serve(self) -> None:
        """Answer until the process ends."""
        while True:
            link, _ = self._listening.accept()
            threading.Thread(target=self._serve_one, args=(link,), daemon=True).start()

    def _serve_one(self, link: socket.socket) -> None:
        with self._lock:
            if self._links == 0:
                self.worker.refresh()  # a run may begin, and no other is in progress
            self._links += 1
        try:
            with suppress(OSError, ValueError), link:
                while (request := read_frame(link)) is not None:
                    write_frame(link, self.worker.answer(request))
        finally:
            with self._lock:
                self._links -= 1


def main() -> int:
    """Run the worker of a kit and a site.toml, the two arguments."""
    die_with_parent()
    # What steps print goes to the log; notices for the owner go to the supervisor, through the pipe.
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def notify(line: str) -> None:
        with suppress(OSError):
            print(" ".join(line.split()), file=pipe, flush=True)

    try:
        server = WorkerServer(Path(sys.argv[1]), Path(sys.argv[2]), notify)
    except (FedspanError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        return BAD_CONFIG
    notify(server.worker.in_words())
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
