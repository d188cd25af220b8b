"""A local deployment: a whole federation on this machine, for demos and tests. It ends with its process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.setup.kit import TRANSPORTS, FederationPlan, needs_nvflare
from fedspan.engines.nvflare.setup.parent_death_watch import child_environment
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.errors import FedspanError

#: Seconds in which a coordinator or a site must be up.
START_LIMIT = 60.0

#: Seconds in which processes of runs must have noticed that their parent has ended.
END_LIMIT = 20.0


class LocalDeployment:
    """A coordinator and sites as processes of their own, on a free port of this machine.

    Parameters
    ----------
    folder : path
        For kits and logs.
    name : str
        The federation's.
    sites : mapping
        The owner's ``site.toml`` of each site.
    users : mapping, optional
        The role of each user; one analyst, ``alice``, by default.
    transport : str, default="grpc"
        See `TRANSPORTS`.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        sites: Mapping[str, Path],
        users: Mapping[str, str] | None = None,
        transport: str = TRANSPORTS[0],
    ) -> None:
        self.folder = folder
        needs_nvflare()
        self._sites = dict(sites)
        roles = dict(users or {"alice": "analyst"})
        names = tuple(sorted(sites))
        self.plan = FederationPlan(name, "127.0.0.1", _free_port(), names, roles, transport=transport)
        provision(self.plan, folder / "kits")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def kit(self, name: str) -> Path:
        """Return the kit of a participant."""
        return self.folder / "kits" / name

    def start(self, *names: str, wait: bool = True) -> None:
        """Start participants, by default the coordinator and all sites, and wait until they have joined."""
        names = names or (COORDINATOR, *self._sites)
        for name in names:
            site = ("site", "start", str(self.kit(name)), "--config", str(self._sites.get(name)))
            self._start(name, *(site if name in self._sites else ("coordinator", "start", str(self.kit(name)))))
        for name in names if wait else ():
            self.wait_until(name, f"{name} joined" if name in self._sites else "the coordinator is up")

    def kill(self, name: str) -> None:
        """Kill a participant's process without warning, as a power cut would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all processes, as Ctrl-C would, and wait for those that they started."""
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        until = time.monotonic() + END_LIMIT
        while (left := _processes_of(self.folder)) and time.monotonic() < until:
            time.sleep(0.05)
        for process_id in left:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)

    def output(self, name: str) -> str:
        """Return what a participant printed."""
        file = self.folder / f"{name}.out"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def wait_until(self, name: str, line: str, limit: float = START_LIMIT) -> None:
        """Wait until a participant has printed a line since its last start."""
        until = time.monotonic() + limit
        while line not in self.output(name).rpartition("Ctrl-C stops it")[2]:
            if self.processes[name].poll() is not None:
                raise FedspanError(f"{name} did not start: {self.output(name).strip()[-500:]}")
            if time.monotonic() > until:
                raise FedspanError(f"{name} did not print {line!r} in {limit:g} seconds: {self.output(name)[-500:]}")
            time.sleep(0.1)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fedspan", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                start_new_session=True,
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _processes_of(folder: Path) -> list[int]:
    """Return the other processes that name `folder` on their command line: each works for a kit in it."""
    import psutil

    found = psutil.process_iter(["cmdline"])
    named = [one.pid for one in found if f"{folder}/" in " ".join(one.info["cmdline"] or ())]
    return [pid for pid in named if pid != os.getpid()]
