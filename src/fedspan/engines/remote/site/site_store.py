"""A site's disk: what it keeps of each run, in a folder of mode 0700 that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from fedspan.durable.whole_file import write_whole
from fedspan.engines.remote.messages.refusals import StaleError
from fedspan.engines.remote.site.run_file import RunFile
from fedspan.errors import InputError, MessageError
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site.site_host import RunState

_DAY = 86400.0
_MOST_OPEN = 32
#: Runs that have not continued for this number of days are removed, and so is the memory of ended runs.
KEEP_DAYS = 30.0


class SiteStore:
    """What a site keeps of its runs.

    Parameters
    ----------
    folder : path
        Made with mode 0700.
    timeout : float, default=30.0
        Seconds to wait for an earlier process that still uses the folder.
    """

    def __init__(self, folder: Path, timeout: float = 30.0) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            self._lock = os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"the site's folder {str(folder)!r} cannot be used: {error.strerror}") from None
        self._take_lock(timeout)
        self._open: dict[str, RunFile] = {}
        self.remove_old()

    def run(self, run: str) -> RunFile:
        """Return the file of a run. Of runs that rest for a while, only the disk has the state."""
        if run not in self._open:
            while len(self._open) >= _MOST_OPEN:
                self.drop(next(iter(self._open)))
            self._open[run] = RunFile(self.folder / f"{blake2b(run.encode(), digest_size=16).hexdigest()}.run")
        return self._open[run]

    def check_serial(self, run: str, serial: int) -> None:
        """Refuse a request that is not newer than all that were answered, or older than what the store remembers."""
        seen = self.run(run).serial
        if serial <= seen:
            raise StaleError("this request, or a later one of its run, has been seen before", seen)
        if serial < (time.time() - KEEP_DAYS * _DAY) * 1e9:
            raise MessageError(f"this request is more than {KEEP_DAYS:g} days old")

    def secret(self) -> bytes:
        """Return the site's secret (32 bytes), made when it is first needed."""
        path = self.folder / "secret"
        if not path.exists():
            write_whole(path, secrets.token_bytes(32))
        return path.read_bytes()

    def later(self) -> int:
        """Return the time in nanoseconds, later than all that were returned before: a clock may have been set back."""
        path, made = self.folder / "newest", time.time_ns()
        with suppress(OSError, ValueError):  # not there yet, or cut
            made = max(made, int(path.read_bytes()) + 1)
        with suppress(OSError):  # a full disk: the clock alone decides
            write_whole(path, str(made).encode())
        return made

    def remove_old(self) -> None:
        """Remove runs that have not continued for `KEEP_DAYS`."""
        for path in [*self.folder.glob("*.run"), *self.folder.glob("*.new")]:
            if time.time() - path.stat().st_mtime > KEEP_DAYS * _DAY:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files and unlock the folder."""
        for run in list(self._open):
            self.drop(run)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def drop(self, run: str) -> None:
        """Forget what was loaded of a run; the disk keeps it."""
        file = self._open.pop(run, None)
        if file is not None:
            file.close()

    # What the site's host writes (`Records`).

    def load(self, run: str) -> RunState:
        """Return the state and the pending replies of a run."""
        return self.run(run).state

    def answered(self, call: Call, after: int, delivery: Delivery) -> None:
        """Write a reply before it leaves."""
        self.run(call.run).answered(after, call, delivery)

    def failed(self, call: Call, after: int) -> None:
        """Write that a step failed."""
        if call.part == 0:
            self.run(call.run).failed(after, call.number)

    def _take_lock(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > until:
                    os.close(self._lock)
                    raise InputError(f"the site's folder {str(self.folder)!r} is in use by another process") from None
                time.sleep(0.05)
