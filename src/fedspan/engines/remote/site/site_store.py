"""A site's disk: what it keeps of each run, in a folder of mode 0700 that one process uses at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from hashlib import blake2b
from pathlib import Path

from fedspan.engines.remote.site.run_file import RunFile
from fedspan.errors import FedspanError, InputError, MessageError
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.site.site_host import RunState

_DAY = 86400.0
_MOST_OPEN = 32


class SiteStore:
    """What a site keeps of its runs.

    Parameters
    ----------
    folder : path
        Made with mode 0700.
    keep_days : float, default=30.0
        Runs that nobody has gone on with for so long are removed; so is what is known of those that are over.
    patience : float, default=30.0
        Seconds to wait for a process before this one that has not let go of the folder yet.
    """

    def __init__(self, folder: Path, keep_days: float = 30.0, patience: float = 30.0) -> None:
        self.folder = Path(folder)
        self.keep_days = keep_days
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            self._lock = os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"the site's folder {str(folder)!r} cannot be used: {error.strerror}") from None
        self._take_lock(patience)
        self._open: dict[str, RunFile] = {}
        self.remove_old()

    def run(self, run: str) -> RunFile:
        """Return what is kept of a run; of runs that nobody goes on with for a while, only on the disk."""
        if run not in self._open:
            while len(self._open) >= _MOST_OPEN:
                self.drop(next(iter(self._open)))
            self._open[run] = RunFile(self.folder / f"{blake2b(run.encode(), digest_size=16).hexdigest()}.run")
        return self._open[run]

    def check_serial(self, run: str, serial: int) -> None:
        """Refuse a request that is not newer than all that were answered, or too old for anybody to remember."""
        seen = self.run(run).serial
        if serial <= seen:
            raise StaleError("stale: this request, or a later one of its run, has been seen before", seen)
        if serial < (time.time() - self.keep_days * _DAY) * 1e9:
            raise MessageError(f"stale: this request is more than {self.keep_days:g} days old")

    def secret(self) -> bytes:
        """Return the site's secret (32 bytes), made when it is first needed."""
        path = self.folder / "secret"
        if not path.exists():
            beside = path.with_suffix(".new")
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            os.replace(beside, path)
        return path.read_bytes()

    def remove_old(self) -> None:
        """Remove what nobody has gone on with for long."""
        for path in [*self.folder.glob("*.run"), *self.folder.glob("*.new")]:
            if time.time() - path.stat().st_mtime > self.keep_days * _DAY:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the folder."""
        for run in list(self._open):
            self.drop(run)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # What the site's host writes down.

    def load(self, run: str) -> RunState:
        """Return the state and the pending replies of a run."""
        return self.run(run).state

    def answered(self, call: Call, after: int, delivery: Delivery) -> None:
        """Write down a reply before it leaves."""
        self.run(call.run).answered(after, call, delivery)

    def failed(self, call: Call, after: int) -> None:
        """Write down that a step failed."""
        if call.part == 0:
            self.run(call.run).failed(after, call.number)

    def drop(self, run: str) -> None:
        """Forget what was loaded of a run."""
        file = self._open.pop(run, None)
        if file is not None:
            file.close()

    def _take_lock(self, patience: float) -> None:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > until:
                    os.close(self._lock)
                    raise InputError(f"the site's folder {str(self.folder)!r} is in use by another process") from None
                time.sleep(0.05)


class StaleError(FedspanError):
    """A request that was seen before; `seen` is the last one."""

    def __init__(self, message: str, seen: int) -> None:
        super().__init__(message)
        self.seen = seen
