"""The worker process, the one process of a site that reads its data and runs steps, and its supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedspan.engines.nvflare.setup.console_events import report
from fedspan.engines.nvflare.setup.parent_death_watch import FOLDER_AT_START, die_with_parent
from fedspan.engines.nvflare.site.owned_worker import OwnedWorker
from fedspan.engines.remote.site.byte_link import ByteLink, socket_address
from fedspan.errors import FedspanError, InputError

#: The exit code of a worker that can't use the owner's site.toml.
BAD_CONFIG = 3

#: Seconds between two starts of a worker that dies again and again, and of reading without a sentence.
PAUSE, SILENT = 2.0, 10.0


def socket_path(kit: Path) -> Path:
    """Return where the site's worker listens: beside the kit's keys, in a folder that only its owner enters."""
    return kit / "worker.sock"


class Supervisor:
    """One worker process, and a thread that watches it."""

    def __init__(self, kit: Path, config: Path) -> None:
        self._kit = kit
        self._config = config
        self._process = self._start()

    def wait_until_ready(self) -> None:
        """Wait until the worker has read the owner's data, or raise its error; then watch it."""
        first = self._first_line()
        if self._process.poll() is not None or not first:
            raise InputError(self._error())
        report(first)
        threading.Thread(target=self._watch, daemon=True, name="fedspan-supervisor").start()

    def _start(self) -> subprocess.Popen[str]:
        log = self._kit / "worker.log"
        module = "fedspan.engines.nvflare.site.worker_process"
        with log.open("w", encoding="utf-8") as errors:
            log.chmod(0o600)
            command = [sys.executable, "-m", module, str(self._kit), str(self._config)]
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=FOLDER_AT_START,
            )

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        slow = threading.Timer(SILENT, report, ["the worker is reading the owner's data; the site answers after that"])
        slow.daemon = True
        slow.start()
        line = self._process.stdout.readline().strip()
        slow.cancel()
        if not line:
            self._process.wait()
        return line

    def _error(self) -> str:
        lines = (self._kit / "worker.log").read_text(encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else "the site's worker did not start"

    def _watch(self) -> None:
        shown = ""
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:  # notices for the owner, until the worker dies
                report(line.strip())
            code, begun = self._process.wait(), time.monotonic()
            report(f"the worker died ({code}) and restarts")
            self._process = self._start()
            first = self._first_line()
            why = first or self._error()
            if first or why != shown:
                report(why)
            shown = why
            time.sleep(max(0.0, PAUSE - (time.monotonic() - begun)) if not first else 0.0)


class WorkerServer:
    """Answers requests of the site's other processes, each connection in a thread."""

    def __init__(self, kit: Path, config: Path, notify: Callable[[str], None]) -> None:
        self.worker = OwnedWorker(kit, config, notify)
        self._lock = threading.Lock()
        self._links = 0
        path = socket_path(kit)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_address(path) as address:
            self._listener.bind(address)
        path.chmod(0o600)
        self._listener.listen(64)

    def serve(self) -> None:
        """Answer until the process ends."""
        while True:
            link = ByteLink(self._listener.accept()[0])
            threading.Thread(target=self._serve_one, args=(link,), daemon=True).start()

    def _serve_one(self, link: ByteLink) -> None:
        with self._lock:
            if self._links == 0:
                self.worker.refresh()  # a run may begin, and no other is in progress
            self._links += 1
        try:
            with suppress(EOFError, OSError):
                while True:
                    link.send(self.worker.answer(link.receive()))
        finally:
            link.close()
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
