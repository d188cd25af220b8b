"""A real browser for tests: headless Chromium, driven over a pipe by the DevTools protocol. Needs no package.

``--remote-debugging-pipe`` reads JSON messages, each ended by a NUL, from file descriptor 3, and writes them to 4. When
the pipe closes, as it does when this process dies, the browser ends.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Seconds to wait for anything: for slow machines, not a measure of speed.
PATIENCE = 180.0
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Puts the two ends of the pipes where the browser looks for them, and becomes the browser.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def find_chromium() -> str | None:
    """Return the browser's path, or None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """One browser with one page, and what that page complained of and requested from the network."""

    def __init__(self, profile: Path) -> None:
        path = find_chromium()
        assert path is not None
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]  # out of the way of 3 and 4
        os.close(read)
        os.close(write)
        command = [path, *_SWITCHES, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, ends), *command],
            pass_fds=ends,
            # Its socket needs a short path, and a download into a folder with umlauts their encoding.
            env={**os.environ, "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and all of its processes."""
        with suppress(OSError, AssertionError):
            self._session = None
            self.send("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    # ---- The page.

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a file, or an address, in a window of this size, and wait until it is there."""
        self.complaints.clear()
        self.requests.clear()
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )
        self._events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, or of the promise that it is."""
        reply = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, f"{script}: {reply['exceptionDetails']}"
        return reply["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until a JavaScript expression is true, as the page draws frame after frame, and return its value."""
        return self.run(
            "new Promise((done, fail) => { const began = performance.now(); (function look() { "
            f"const found = ({script}); if (found) done(found); "
            f"else if (performance.now() - began > {1000 * PATIENCE}) fail(new Error('never')); "
            "else requestAnimationFrame(look); })(); })"
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send what a mouse does: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        reply = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(reply["data"]))

    # ---- The pipe.

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            reply = self._next(deadline)
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self._take(reply)

    def wait_for(self, event: str) -> None:
        """Wait for an event, unless it has come already."""
        deadline = time.monotonic() + PATIENCE
        while not any(reply.get("method") == event for reply in self._events):
            self._take(self._next(deadline))

    def _take(self, event: dict[str, Any]) -> None:
        method, reply = event.get("method", ""), event.get("params", {})
        self._events.append(event)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(reply["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and reply["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(reply["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(str(reply["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(reply["request"]["url"])

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
