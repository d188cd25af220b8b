"""Keeps a site's worker running: starts it, and starts it anew when it dies."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from fedspan.engines.nvflare.setup.console_events import say
from fedspan.errors import InputError

#: Where a site's kit keeps the path of the owner's site.toml, and the exit code of a worker that cannot use it.
SITE_CONFIG, BAD_CONFIG = "site_config.json", 3

#: Seconds between two starts of a worker that dies again and again.
PAUSE = 2.0


class Supervisor:
    """One worker process, and a thread that watches it."""

    def __init__(self, kit: Path) -> None:
        self._kit = kit
        self._process = self._start()

    def wait_until_ready(self) -> None:
        """Wait until the worker has read the owner's data, or raise what it complains about; then watch over it."""
        first = self._first_line()
        if self._process.poll() is not None or not first:
            raise InputError(self._complaint())
        say(first)
        threading.Thread(target=self._watch, daemon=True, name="fedspan-supervisor").start()

    def _start(self) -> subprocess.Popen[str]:
        log = self._kit / "worker.log"
        with log.open("w", encoding="utf-8") as errors:
            log.chmod(0o600)
            command = [sys.executable, "-m", "fedspan.engines.nvflare.site.worker_process", str(self._kit)]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.wait()
        return line

    def _complaint(self) -> str:
        said = (self._kit / "worker.log").read_text(encoding="utf-8").strip().splitlines()
        return said[-1] if said else "the site's worker did not start"

    def _watch(self) -> None:
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:  # what the owner is told, until the worker dies
                say(line.strip())
            code, begun = self._process.wait(), time.monotonic()
            say(f"the worker died ({code}); it is started anew")
            self._process = self._start()
            first = self._first_line()
            if first:
                say(first)
            elif self._process.returncode == BAD_CONFIG:
                say(self._complaint())
            time.sleep(max(0.0, PAUSE - (time.monotonic() - begun)) if not first else 0.0)
