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

from fedspan.engines.nvflare.setup.federation_plan import FederationPlan
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
    """

    def __init__(
        self, folder: Path, name: str, sites: Mapping[str, Path], users: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._sites = dict(sites)
        roles = dict(users or {"alice": "analyst"})
        self.plan = FederationPlan(name, "127.0.0.1", _free_port(), tuple(sorted(sites)), roles)
        provision(self.plan, folder / "kits")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def kit(self, name: str) -> Path:
        """Return the kit of a participant."""
        return self.folder / "kits" / name

    def start(self) -> None:
        """Start the coordinator and all sites, and wait until they have joined."""
        self.start_coordinator(wait=False)
        for site in self._sites:
            self.start_site(site, wait=False)
        self.wait_until("coordinator", "the coordinator is up")
        for site in self._sites:
            self.wait_until(site, f"{site} joined")

    def start_coordinator(self, *, wait: bool = True) -> None:
        """Start the coordinator and wait until it is up."""
        self._start("coordinator", "coordinator", "start", str(self.kit("coordinator")))
        if wait:
            self.wait_until("coordinator", "the coordinator is up")

    def start_site(self, site: str, *, wait: bool = True) -> None:
        """Start a site and wait until it has joined."""
        self._start(site, "site", "start", str(self.kit(site)), "--config", str(self._sites[site]))
        if wait:
            self.wait_until(site, f"{site} joined")

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
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if str(folder).encode() + b"/" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
