"""The supervisor of a site's worker: starts it, and starts it again when it dies."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from fedspan.engines.nvflare.setup.console_events import report
from fedspan.errors import InputError

#: The exit code of a worker that can't use the owner's site.toml.
BAD_CONFIG = 3

#: Seconds between two starts of a worker that dies again and again.
PAUSE = 2.0


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
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.wait()
        return line

    def _error(self) -> str:
        lines = (self._kit / "worker.log").read_text(encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else "the site's worker did not start"

    def _watch(self) -> None:
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:  # notices for the owner, until the worker dies
                report(line.strip())
            code, begun = self._process.wait(), time.monotonic()
            report(f"the worker died ({code}) and restarts")
            self._process = self._start()
            first = self._first_line()
            if first:
                report(first)
            elif self._process.returncode == BAD_CONFIG:
                report(self._error())
            time.sleep(max(0.0, PAUSE - (time.monotonic() - begun)) if not first else 0.0)
