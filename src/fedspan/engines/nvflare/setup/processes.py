"""``fedspan coordinator start`` and ``fedspan site start``: in the foreground, until Ctrl-C, leaving nothing behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fedspan.engines.members.kit_instance import lock_kit
from fedspan.engines.members.member_list import ends_soon
from fedspan.engines.nvflare.setup.console_events import report
from fedspan.engines.nvflare.setup.hardening import HEARTBEAT, server_resources, site_resources
from fedspan.engines.nvflare.setup.kit import Kit, needs_nvflare, read_kit, write_json
from fedspan.engines.nvflare.setup.parent_death_watch import (
    FOLDER_AT_START,
    be_a_parent,
    environment_at_start,
    no_tensors,
)
from fedspan.engines.nvflare.setup.provision import check_own
from fedspan.engines.nvflare.setup.reach import proxy_of
from fedspan.engines.nvflare.site.worker_process import Supervisor
from fedspan.errors import InputError

#: The exit code of a site that the coordinator does not admit, and that is not to be started again by itself.
NOT_ADMITTED = 3

#: A parameter of the C library's ``mallopt``.
_M_ARENA_MAX = -8

#: The locks of kits that this process has.
_held: list[object] = []


def start_coordinator(path: Path) -> int:
    """Run the federation's server in this process."""
    kit = _opened(path, "coordinator")
    from fedspan.engines.nvflare.server import study_queue

    for folder in (kit.path / "store" / "jobs", kit.path / "store" / "snapshots"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(kit.path / "local" / "resources.json", server_resources(kit.path))
    study_queue.home = kit.path
    listen = listening_address(kit.server)
    _prepare()
    where = "" if listen else "; this machine has no such address, and it listens on all that it has"
    report(f"coordinator of {kit.federation} at {kit.server}{where}; Ctrl-C stops it")
    return _run(kit, listen or "0.0.0.0", [])


def start_site(path: Path, config: Path, options: Sequence[str] = ()) -> int:
    """Run a site in this process: it connects to the server, and a worker process reads the data.

    `options` of the command line are given again where the process starts itself again.
    """
    kit, config = _opened(path, "site"), config.resolve()
    if not config.is_file():
        raise InputError(f"{config} does not exist: it is the owner's site.toml")
    from fedspan.engines.nvflare.site import site_link

    write_json(kit.path / "local" / "resources.json", site_resources())
    site_link.link = link = site_link.SiteLink(kit.path)
    _prepare()
    report(f"site {kit.name} of {kit.federation}, coordinator at {kit.server}; Ctrl-C stops it")
    worker = Supervisor(kit.path, config)
    from fedspan.engines.nvflare import flare

    flare.import_early()  # while the worker reads the data
    worker.wait_until_ready()
    _restart_when_it_ends(["site", "start", str(kit.path), "--config", str(config), *options])
    site_link.leave = lambda why: _end_all(why, lambda: os._exit(NOT_ADMITTED))
    threading.Thread(target=link.watch, daemon=True, name="fedspan-site-link").start()
    return _run(kit, None, [f"uid={kit.name}", f"heart_beat_interval={HEARTBEAT}"])


def _opened(path: Path, kind: str) -> Kit:
    """Return the kit of a coordinator or site; refuse a certificate that has ended or is of another federation."""
    kit = read_kit(path)
    kit.must_be(kind, f"'fedspan {kind} start'")
    needs_nvflare()
    check_own(kit.path)
    _held.append(lock_kit(kit.path))
    if soon := ends_soon(kit.path):
        report(soon)
    return kit


def listening_address(server: str) -> str | None:
    """Return the address of `server`, ``host:port``, if this machine has it; refuse a port that is in use.

    >>> listening_address("localhost:0")
    '127.0.0.1'
    """
    host, _, port = server.rpartition(":")
    try:
        found: str | None = socket.gethostbyname(host)
        with socket.socket() as probe:
            probe.bind((found, 0))
    except OSError:
        found = None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((found or "", int(port)))
            probe.listen()
        except OSError as error:
            raise InputError(f"the coordinator can't listen on port {port} of {host}: {error.strerror}") from None
    return found


def _prepare() -> None:
    """Take over signals, and give memory of large messages back to the system."""
    no_tensors()
    be_a_parent()
    with suppress(AttributeError, OSError):  # of the GNU C library alone: threads share what was freed
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: _end_all("stopped", lambda: os._exit(0)))


def _restart_when_it_ends(command: list[str]) -> None:
    """Run `command` as this very process if NVIDIA FLARE ends by itself: a coordinator may die while a site logs in."""
    from fedspan.engines.nvflare import flare
    from fedspan.engines.nvflare.site import site_link

    def restart() -> None:
        os.chdir(FOLDER_AT_START)
        os.execve(sys.executable, [sys.executable, "-m", "fedspan", *command], environment_at_start())

    flare.when_it_ends(lambda: _end_all("the coordinator refused this site, or died meanwhile: trying again", restart))
    site_link.restart = lambda why: _end_all(why, restart)


def _run(kit: Kit, listen: str | None, named: list[str]) -> int:
    """Become NVIDIA FLARE's process for this kit."""
    from fedspan.engines.nvflare import flare

    (kit.path / "transfer").mkdir(exist_ok=True, mode=0o700)
    flare.use_proxy(proxy_of(kit))
    return flare.run_program(kit.kind, str(kit.path), listen, named)


def _end_all(why: str, then: Callable[[], None]) -> None:
    """Kill the processes of runs, whose state is on the disk, and then end this one."""
    import psutil

    report(why)
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            child.kill()
    then()
